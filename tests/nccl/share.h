/* Processes, a rank each, on fewer GPUs than there are processes. */
#ifndef TRI_TESTS_NCCL_SHARE_H
#define TRI_TESTS_NCCL_SHARE_H

#include <stdint.h>

/* How many GPUs there are. The parent of processes that use CUDA must not use it itself. */
int share_gpus(void);

/* The GPU of the calling process, the index-th of `n`: its own, or one that it shares if there are
 * fewer. NCCL refuses two ranks of one host on one GPU; so the processes are hosts of their own then
 * (NCCL_HOSTID), and talk over sockets. Before the process uses NCCL. */
int32_t share_gpu(int index, int n, int gpus);

#endif
