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
