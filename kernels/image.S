/* SPDX-License-Identifier: MIT */
	.section .rodata
	.balign 16
	.globl hs_kernel_image
	.hidden hs_kernel_image
	.type hs_kernel_image, %object
hs_kernel_image:
	.incbin "module.fatbin"
	.size hs_kernel_image, . - hs_kernel_image
	.section .note.GNU-stack, "", %progbits
