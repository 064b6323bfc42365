/* SPDX-License-Identifier: MIT */
#include "softgpu/fibre.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

#define STACKS_PER_SLAB 64
#define GUARD_BYTES ((size_t)4096)

struct soft_fibre {
	void *sp;
	char *stack; /* above the guard */
	void (*entry)(void *data);
	void *data;
	bool ended;
	struct soft_fibre *next; /* of the free list */
	void *asan_fake, *tsan;
};

static struct soft_fibre *spare;
static struct soft_fibre *current;
static void *caller_sp;

/* What the sanitizers want to know of the stack that entered us. */
#ifdef __SANITIZE_ADDRESS__
static const void *caller_bottom;
static size_t caller_bytes;
#endif
#ifdef __SANITIZE_THREAD__
static void *caller_tsan;
#endif

/* Saves the callee-saved registers and the stack pointer, loads the other
 * one's. 250 ns by ucontext (it calls the kernel for the signal mask), 7 so. */
void soft_fibre_switch(void **save, void *load);
#if defined(__x86_64__)
#define SAVED_WORDS 6
__asm__(".text\n"
	".globl soft_fibre_switch\n"
	".hidden soft_fibre_switch\n"
	".type soft_fibre_switch, @function\n"
	"soft_fibre_switch:\n"
	"	push %rbp\n	push %rbx\n	push %r12\n"
	"	push %r13\n	push %r14\n	push %r15\n"
	"	mov %rsp, (%rdi)\n"
	"	mov %rsi, %rsp\n"
	"	pop %r15\n	pop %r14\n	pop %r13\n"
	"	pop %r12\n	pop %rbx\n	pop %rbp\n"
	"	ret\n"
	".size soft_fibre_switch, .-soft_fibre_switch\n");
#elif defined(__aarch64__)
#define SAVED_WORDS 20 /* x19-x30, d8-d15 */
__asm__(".text\n"
	".globl soft_fibre_switch\n"
	".hidden soft_fibre_switch\n"
	".type soft_fibre_switch, %function\n"
	"soft_fibre_switch:\n"
	"	sub sp, sp, #160\n"
	"	stp x19, x20, [sp]\n	stp x21, x22, [sp, #16]\n"
	"	stp x23, x24, [sp, #32]\n	stp x25, x26, [sp, #48]\n"
	"	stp x27, x28, [sp, #64]\n	stp x29, x30, [sp, #80]\n"
	"	stp d8, d9, [sp, #96]\n	stp d10, d11, [sp, #112]\n"
	"	stp d12, d13, [sp, #128]\n	stp d14, d15, [sp, #144]\n"
	"	mov x2, sp\n	str x2, [x0]\n	mov sp, x1\n"
	"	ldp x19, x20, [sp]\n	ldp x21, x22, [sp, #16]\n"
	"	ldp x23, x24, [sp, #32]\n	ldp x25, x26, [sp, #48]\n"
	"	ldp x27, x28, [sp, #64]\n	ldp x29, x30, [sp, #80]\n"
	"	ldp d8, d9, [sp, #96]\n	ldp d10, d11, [sp, #112]\n"
	"	ldp d12, d13, [sp, #128]\n	ldp d14, d15, [sp, #144]\n"
	"	add sp, sp, #160\n	ret\n"
	".size soft_fibre_switch, .-soft_fibre_switch\n");
#else
#error "fibres: no switch for this processor"
#endif

static void arrived(struct soft_fibre *fibre)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fibre->asan_fake, &caller_bottom, &caller_bytes);
#else
	(void)fibre;
#endif
}

static void leave(struct soft_fibre *fibre)
{
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_start_switch_fiber(&fibre->asan_fake, caller_bottom, caller_bytes);
#endif
#ifdef __SANITIZE_THREAD__
	__tsan_switch_to_fiber(caller_tsan, 0);
#endif
	soft_fibre_switch(&fibre->sp, caller_sp);
	arrived(fibre);
}

/* A fibre that ends waits here for its next entry, so stacks are reused. */
static void fibre_main(void)
{
	struct soft_fibre *self = current;

	arrived(self);
	for (;;) {
		self->entry(self->data);
		self->ended = true;
		leave(self);
	}
}

static void prepare(struct soft_fibre *fibre)
{
	/* Tops at different offsets: all at the same would share few cache sets. */
	size_t shift = (uintptr_t)fibre->stack / SOFT_STACK_BYTES % 32 * 128;
	uintptr_t *top = (uintptr_t *)(fibre->stack + SOFT_STACK_BYTES - GUARD_BYTES - shift);

#ifdef __SANITIZE_ADDRESS__
	__asan_unpoison_memory_region(fibre->stack, SOFT_STACK_BYTES - GUARD_BYTES);
	fibre->asan_fake = NULL;
#endif
#ifdef __SANITIZE_THREAD__
	if (fibre->tsan)
		__tsan_destroy_fiber(fibre->tsan);
	fibre->tsan = __tsan_create_fiber(0);
#endif
#if defined(__x86_64__)
	/* As after a call: 8 below a multiple of 16, no caller. */
	top -= SAVED_WORDS + 2;
	memset(top, 0, (SAVED_WORDS + 2) * sizeof(*top));
	top[SAVED_WORDS] = (uintptr_t)fibre_main;
#else
	top -= SAVED_WORDS;
	memset(top, 0, SAVED_WORDS * sizeof(*top));
	top[11] = (uintptr_t)fibre_main; /* x30 */
#endif
	fibre->sp = top;
}

static bool grow(void)
{
	const size_t bytes = STACKS_PER_SLAB * SOFT_STACK_BYTES;
	struct soft_fibre *fibres = calloc(STACKS_PER_SLAB, sizeof(*fibres));
	char *slab = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
		MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (!fibres || slab == MAP_FAILED) {
		free(fibres);
		if (slab != MAP_FAILED)
			munmap(slab, bytes);
		return false;
	}
	for (int i = 0; i < STACKS_PER_SLAB; i++) {
		mprotect(slab + i * SOFT_STACK_BYTES, GUARD_BYTES, PROT_NONE);
		fibres[i].stack = slab + i * SOFT_STACK_BYTES + GUARD_BYTES;
		fibres[i].ended = true;
		fibres[i].next = spare;
		spare = &fibres[i];
	}
	return true;
}

struct soft_fibre *soft_fibre_create(void (*entry)(void *data), void *data)
{
	struct soft_fibre *fibre;

	if (!spare && !grow())
		return NULL;
	fibre = spare;
	spare = fibre->next;
	if (!fibre->sp || !fibre->ended)
		prepare(fibre);
	fibre->entry = entry;
	fibre->data = data;
	fibre->ended = false;
	return fibre;
}

void soft_fibre_destroy(struct soft_fibre *fibre)
{
	fibre->next = spare;
	spare = fibre;
}

bool soft_fibre_enter(struct soft_fibre *fibre)
{
	current = fibre;
#ifdef __SANITIZE_THREAD__
	caller_tsan = __tsan_get_current_fiber();
	__tsan_switch_to_fiber(fibre->tsan, 0);
#endif
#ifdef __SANITIZE_ADDRESS__
	void *fake = NULL;

	__sanitizer_start_switch_fiber(&fake, fibre->stack, SOFT_STACK_BYTES - GUARD_BYTES);
#endif
	soft_fibre_switch(&caller_sp, fibre->sp);
#ifdef __SANITIZE_ADDRESS__
	__sanitizer_finish_switch_fiber(fake, NULL, NULL);
#endif
	return fibre->ended;
}

void soft_fibre_leave(void)
{
	leave(current);
}
