/* SPDX-License-Identifier: MIT */
#include <dlfcn.h>
#include <link.h>
#include <stddef.h>
#include <string.h>
#include "hooks/hook.h"
#include "hooks/nvml.h"
#include "src/base/options.h"

/*
 * The three doors to the driver. ELF binding needs nothing but the exported
 * names. dlsym and cuGetProcAddress first ask the real one, and what they
 * answer is replaced only where it is the address of a row's own entry: which
 * ABI and which stream mode was meant is then the driver's decision, and what
 * we do not know passes through.
 */

static const struct {
	const char *name;
	void *ours;
	size_t at;
} hooks[] = {
#define HOOK(name, proof, flags) {#name, (void *)name, offsetof(struct hs_driver, name)},
#define USE(name, proof, flags)
	HS_DRIVER_TABLE(HOOK, USE)
#undef HOOK
#undef USE
};

/* The name settles it where a driver has one address for two entries. */
void *hs_door_find(const void *real, const char *name)
{
	const size_t length = strlen(name);

	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++) {
		const void *entry = *(void **)((char *)&hs_driver + hooks[i].at);

		if (entry == real && !strncmp(hooks[i].name, name, length))
			return hooks[i].ours;
	}
	return NULL;
}

/*
 * A profiler may give its own library for the driver's, and the cuGetProcAddress
 * in there answers with the driver's own addresses (Nsight Compute 2024.1): then
 * the object that an answer lies in tells which of its names was meant. A link
 * map is a handle in glibc.
 */
static void *behind(const void *real, const char *name)
{
	const size_t length = strlen(name);
	struct link_map *map;
	Dl_info it, front;

	if (!dladdr1(real, &it, (void **)&map, RTLD_DL_LINKMAP) ||
		!dladdr((void *)hs_driver.cuMemAlloc_v2, &front) || it.dli_fbase == front.dli_fbase)
		return NULL;
	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
		if (!strncmp(hooks[i].name, name, length) &&
			hs_dlsym_real(map, hooks[i].name) == real)
			return hooks[i].ours;
	return NULL;
}

static bool known(const char *name)
{
	for (size_t i = 0; i < sizeof(hooks) / sizeof(hooks[0]); i++)
		if (!strcmp(hooks[i].name, name))
			return true;
	return false;
}

/*
 * Our dlsym comes here with names that begin like a driver entry or NVML's. Not NULL: the
 * answer. NULL: the real dlsym is to answer, called by the caller itself, for
 * which RTLD_NEXT and RTLD_DEFAULT mean something else than for us; there the
 * search order finds our exports where we are next. No heap, no environment.
 */
__attribute__((visibility("hidden"))) void *hs_dlsym_pick(void *handle, const char *name);
HS_UNSANITIZED void *hs_dlsym_pick(void *handle, const char *name)
{
	const int saved = errno;
	void *real, *ours = NULL;

	if (!hs_dlsym_open() || handle == RTLD_NEXT || handle == RTLD_DEFAULT || hs_inside ||
		!(known(name) || hs_nvml_knows(name)))
		return NULL;
	real = hs_dlsym_real(handle, name);
	if (real && name[0] == 'n')
		ours = hs_nvml_door(handle, name, real);
	else if (real && hs_driver_attach())
		ours = hs_door_find(real, name);
	errno = saved;
	return ours;
}

/*
 * dlsym itself leaves no frame behind: the real one reads its caller from the
 * return address. gcc 12 makes no sibling call at -O0, hence the assembly.
 */
#define STRING_(x) #x
#define STRING(x) STRING_(x)
#if defined(__x86_64__)
__asm__(".pushsection .text\n"
	".globl dlsym\n"
	".type dlsym, @function\n"
	".p2align 4\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	endbr64\n"
	"	cmpq $0, hs_dlsym_real(%rip)\n"
	"	je 1f\n"
	"	cmpb $'c', (%rsi)\n"
	"	jne 3f\n"
	"	cmpb $'u', 1(%rsi)\n"
	"	jne 2f\n"
	"	movzbl 2(%rsi), %eax\n"
	"	subl $'A', %eax\n"
	"	cmpl $25, %eax\n"
	"	ja 2f\n"
	"1:	pushq %rdi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	pushq %rsi\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	subq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset 8\n"
	"	call hs_dlsym_pick\n"
	"	addq $8, %rsp\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rsi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	popq %rdi\n"
	"	.cfi_adjust_cfa_offset -8\n"
	"	testq %rax, %rax\n"
	"	je 2f\n"
	"	ret\n"
	"3:	cmpb $'n', (%rsi)\n"
	"	jne 2f\n"
	"	cmpb $'v', 1(%rsi)\n"
	"	je 1b\n"
	"2:	jmp *hs_dlsym_real(%rip)\n"
	"	.cfi_endproc\n"
	".size dlsym, .-dlsym\n"
	".popsection\n");
#elif defined(__aarch64__)
__asm__(".pushsection .text\n"
	".globl dlsym\n"
	".type dlsym, %function\n"
	".p2align 4\n"
	"dlsym:\n"
	"	.cfi_startproc\n"
	"	hint #34\n" /* bti c */
	"	adrp x16, hs_dlsym_real\n"
	"	ldr x16, [x16, :lo12:hs_dlsym_real]\n"
	"	cbz x16, 1f\n"
	"	ldrb w17, [x1]\n"
	"	cmp w17, #'c'\n"
	"	b.ne 4f\n"
	"	ldrb w17, [x1, #1]\n"
	"	cmp w17, #'u'\n"
	"	b.ne 2f\n"
	"	ldrb w17, [x1, #2]\n"
	"	sub w17, w17, #'A'\n"
	"	cmp w17, #25\n"
	"	b.hi 2f\n"
	"1:	stp x29, x30, [sp, #-32]!\n"
	"	.cfi_def_cfa_offset 32\n"
	"	.cfi_offset 29, -32\n"
	"	.cfi_offset 30, -24\n"
	"	mov x29, sp\n"
	"	stp x0, x1, [sp, #16]\n"
	"	bl hs_dlsym_pick\n"
	"	mov x17, x0\n"
	"	ldp x0, x1, [sp, #16]\n"
	"	ldp x29, x30, [sp], #32\n"
	"	.cfi_restore 29\n"
	"	.cfi_restore 30\n"
	"	.cfi_def_cfa_offset 0\n"
	"	cbz x17, 3f\n"
	"	mov x0, x17\n"
	"	ret\n"
	"3:	adrp x16, hs_dlsym_real\n"
	"	ldr x16, [x16, :lo12:hs_dlsym_real]\n"
	"2:	br x16\n"
	"4:	cmp w17, #'n'\n"
	"	b.ne 2b\n"
	"	ldrb w17, [x1, #1]\n"
	"	cmp w17, #'v'\n"
	"	b.eq 1b\n"
	"	br x16\n"
	"	.cfi_endproc\n"
	".size dlsym, .-dlsym\n"
	".popsection\n");
#else
HS_EXPORT __attribute__((optimize("O2"))) void *dlsym(
	void *restrict handle, const char *restrict name)
{
	if (!hs_dlsym_real || (name[0] == 'n' && name[1] == 'v') ||
		(name[0] == 'c' && name[1] == 'u' && name[2] >= 'A' && name[2] <= 'Z')) {
		void *ours = hs_dlsym_pick(handle, name);

		if (ours)
			return ours;
	}
	return hs_dlsym_real(handle, name);
}
#endif

/* Also before cuInit: cudart looks everything up first. The empty name that it
 * probes with, errors and the status are the driver's. */
static bool substitute(void)
{
	return !hs_inside && hs_driver_open() && hs_driver_whole() && !hs_options()->disable;
}

static CUresult answer(CUresult result, const char *symbol, void **pfn)
{
	void *ours;

	if (result == CUDA_SUCCESS && symbol && pfn && *pfn && substitute()) {
		ours = hs_door_find(*pfn, symbol);
		if (!ours)
			ours = behind(*pfn, symbol);
		if (ours)
			*pfn = ours;
	}
	return result;
}

HS_EXPORT CUresult cuGetProcAddress(const char *symbol, void **pfn, int version, cuuint64_t flags)
{
	const int saved = errno;
	CUresult result;

	hs_driver_open();
	result = HS_REAL(cuGetProcAddress)(symbol, pfn, version, flags);
	result = answer(result, symbol, pfn);
	errno = saved;
	return result;
}

HS_EXPORT CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int version,
	cuuint64_t flags, CUdriverProcAddressQueryResult *status)
{
	const int saved = errno;
	CUresult result;

	hs_driver_open();
	result = HS_REAL(cuGetProcAddress_v2)(symbol, pfn, version, flags, status);
	result = answer(result, symbol, pfn);
	errno = saved;
	return result;
}
