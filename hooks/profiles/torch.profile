# SPDX-License-Identifier: MIT
#
# ATen's fills (torch 2.11): (int n, FillFunctor value, std::array<char *, 1>).
# torch.zeros of a KV cache is one or several of these.

profile torch-fill-1
role fill
name _ZN2at6native29vectorized_elementwise_kernelILi*ENS0_11FillFunctorI*
sizes 4 1 8
i32 0+0 n
i8 1+0 value
ptr 2+0 data
fill data, n, value

profile torch-fill-2
role fill
name _ZN2at6native29vectorized_elementwise_kernelILi*ENS0_11FillFunctorI*
sizes 4 2 8
i32 0+0 n
i16 1+0 value
ptr 2+0 data
fill data, n * 2, value

profile torch-fill-4
role fill
name _ZN2at6native29vectorized_elementwise_kernelILi*ENS0_11FillFunctorI*
sizes 4 4 8
i32 0+0 n
i32 1+0 value
ptr 2+0 data
fill data, n * 4, value

profile torch-fill-8
role fill
name _ZN2at6native29vectorized_elementwise_kernelILi*ENS0_11FillFunctorI*
sizes 4 8 8
i32 0+0 n
i64 1+0 value
ptr 2+0 data
fill data, n * 8, value

# ATen's gathers (torch 2.11) read any rows and write one tensor: x[index]. Under
# SGLang 0.5.17 and vLLM 0.26.0 such kernels carried windows of KV. These profiles
# are from torch's source and from what nvcc makes of such a lambda; they have not
# met the kernels. index_elementwise_kernel is (int64_t n, lambda); the lambda holds an
# OffsetCalculator<3> of 25 dimensions, out, in, the number of indices, 25 addresses
# of indices, sizes and strides. How far it writes follows from the calculator: to
# the window's end, as far as we care.
profile torch-index
role fill
name _ZN2at6native24index_elementwise_kernelILi*EZNS0_16gpu_index_kernelIZNS0_17index_kernel_impl*
sizes 8 1240
ptr 1+608 out
fill out, 0x10000000000, 1

# (char *out, char *in, index *, int count, int64_t slice, dimension, in_stride,
# out_stride, bool)
profile torch-gather
role fill
name _ZN2at6native24vectorized_gather_kernelILi*EEvPcS2_PT0_illllb
sizes 8 8 8 4 8 8 8 8 1
ptr 0+0 out
i32 3+0 count
i64 7+0 stride
fill out, count * stride, 1
