/* SPDX-License-Identifier: MIT */
/* What the library is to the dynamic linker: exports LIBRARY. */
#include <elf.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <cmocka.h>
#include "hooks/table.h"

static const char *const names[] = {"dlsym",
#ifndef __SANITIZE_THREAD__
	"mmap", "mmap64",
#endif
#define HOOK(name, proof, flags) #name,
#define USE(name, proof, flags)
	HS_DRIVER_TABLE(HOOK, USE)
#undef HOOK
#undef USE
};
#define NAMES (sizeof(names) / sizeof(names[0]))

static const char *image;
static const Elf64_Ehdr *head;

static const Elf64_Phdr *segment(int i)
{
	return (const Elf64_Phdr *)(image + head->e_phoff) + i;
}

static const Elf64_Shdr *section(uint32_t type)
{
	const Elf64_Shdr *s = (const Elf64_Shdr *)(image + head->e_shoff);

	for (int i = 0; i < head->e_shnum; i++)
		if (s[i].sh_type == type)
			return &s[i];
	return NULL;
}

static const char *strings(const Elf64_Shdr *of)
{
	return image + ((const Elf64_Shdr *)(image + head->e_shoff))[of->sh_link].sh_offset;
}

static void exports_are_the_table(void **state)
{
	const Elf64_Shdr *table = section(SHT_DYNSYM);
	const Elf64_Sym *symbols = (const Elf64_Sym *)(image + table->sh_offset);
	bool found[NAMES] = {false};
	(void)state;

	for (size_t i = 1; i < table->sh_size / sizeof(*symbols); i++) {
		const char *name = strings(table) + symbols[i].st_name;
		size_t row = 0;

		if (symbols[i].st_shndx == SHN_UNDEF)
			continue;
		while (row < NAMES && strcmp(names[row], name))
			row++;
		if (row == NAMES)
			fail_msg("%s is exported and not in the table", name);
		assert_int_equal(ELF64_ST_TYPE(symbols[i].st_info), STT_FUNC);
		found[row] = true;
	}
	for (size_t row = 0; row < NAMES; row++)
		if (!found[row])
			fail_msg("%s is not exported", names[row]);
}

static void needs_libc_only(void **state)
{
	static const char *const allowed[] = {
		"libc.so.", "libdl.so.", "libpthread.so.", "libm.so.", "ld-linux"};
	const Elf64_Shdr *table = section(SHT_DYNAMIC);
	const Elf64_Dyn *entry = (const Elf64_Dyn *)(image + table->sh_offset);
	bool now = false;
	(void)state;

	for (; entry->d_tag != DT_NULL; entry++) {
		const char *name = strings(table) + entry->d_un.d_val;
		size_t i = 0;

		if (entry->d_tag == DT_FLAGS_1)
			now = entry->d_un.d_val & DF_1_NOW;
		if (entry->d_tag != DT_NEEDED)
			continue;
		while (i < 5 && strncmp(name, allowed[i], strlen(allowed[i])))
			i++;
		if (i == 5)
			fail_msg("it needs %s", name);
	}
	assert_true(now);
}

/* Built on a machine with a newer glibc it needs that machine's; what we pin is
 * dlvsym, which would else refuse everything before 2.34. */
static void glibc_floor(void **state)
{
	const Elf64_Shdr *table = section(SHT_GNU_verneed);
	const char *at = image + table->sh_offset;
	(void)state;

	for (;;) {
		const Elf64_Verneed *need = (const Elf64_Verneed *)at;
		const char *aux = at + need->vn_aux;

		for (int i = 0; i < need->vn_cnt; i++) {
			const Elf64_Vernaux *version = (const Elf64_Vernaux *)aux;
			const char *name = strings(table) + version->vna_name;
			int minor = 0;

			if (sscanf(name, "GLIBC_2.%d", &minor) != 1 || minor > 34)
				fail_msg("it needs %s", name);
			aux += version->vna_next;
		}
		if (!need->vn_next)
			return;
		at += need->vn_next;
	}
}

static void dlvsym_is_pinned(void **state)
{
	const Elf64_Shdr *table = section(SHT_DYNSYM);
	const Elf64_Sym *symbols = (const Elf64_Sym *)(image + table->sh_offset);
	const Elf64_Half *versions =
		(const Elf64_Half *)(image + section(SHT_GNU_versym)->sh_offset);
	const Elf64_Shdr *needs = section(SHT_GNU_verneed);
	const char *at = image + needs->sh_offset;
	Elf64_Half wanted = 0;
	(void)state;

	for (size_t i = 1; i < table->sh_size / sizeof(*symbols); i++)
		if (!strcmp(strings(table) + symbols[i].st_name, "dlvsym"))
			wanted = versions[i];
	assert_int_not_equal(wanted, 0);
	for (;;) {
		const Elf64_Verneed *need = (const Elf64_Verneed *)at;
		const char *aux = at + need->vn_aux;

		for (int i = 0; i < need->vn_cnt; i++) {
			const Elf64_Vernaux *version = (const Elf64_Vernaux *)aux;

			if (version->vna_other == wanted) {
				const char *name = strings(needs) + version->vna_name;

				assert_true(!strcmp(name, "GLIBC_2.2.5") ||
					    !strcmp(name, "GLIBC_2.17"));
				return;
			}
			aux += version->vna_next;
		}
		if (!need->vn_next)
			fail();
		at += need->vn_next;
	}
}

static void nothing_writable_runs(void **state)
{
	bool stack = false, sealed = false;
	(void)state;

	for (int i = 0; i < head->e_phnum; i++) {
		const Elf64_Phdr *s = segment(i);

		stack |= s->p_type == PT_GNU_STACK;
		sealed |= s->p_type == PT_GNU_RELRO;
		if (s->p_type == PT_GNU_STACK || s->p_type == PT_LOAD)
			assert_int_not_equal(s->p_flags & (PF_W | PF_X), PF_W | PF_X);
	}
	assert_true(stack);
	assert_true(sealed);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(exports_are_the_table),
		cmocka_unit_test(needs_libc_only),
		cmocka_unit_test(glibc_floor),
		cmocka_unit_test(dlvsym_is_pinned),
		cmocka_unit_test(nothing_writable_runs),
	};
	struct stat stat;
	int file;

	if (argc != 2 || (file = open(argv[1], O_RDONLY)) < 0 || fstat(file, &stat))
		return 2;
	image = mmap(NULL, (size_t)stat.st_size, PROT_READ, MAP_PRIVATE, file, 0);
	if (image == MAP_FAILED)
		return 2;
	head = (const Elf64_Ehdr *)image;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
