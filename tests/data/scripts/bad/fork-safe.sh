#!/bin/bash
export CXI_FORK_SAFE=1
export CXI_FORK_SAFE_HP=1 FI_CXI_DISABLE_CQ_HUGETLB=1
env CXI_FORK_SAFE=1 srun ./a.out
export CXI_FORK_SAFE=0
