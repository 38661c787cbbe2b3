/* What NCCL itself knows about the ranks that make no progress.
 *
 * Since version 2.24 each process has a thread of NCCL's that knows the communicators of the whole
 * job: which processes are dead or do not answer, which ranks differ in state or in the number of
 * their collectives. It answers whoever connects to a port of this host, in lines of text. That is all
 * that NCCL 2.28 tells of progress: it has no function that counts what its kernels have done. */
#ifndef TRI_NCCL_RAS_H
#define TRI_NCCL_RAS_H

/* The first version of NCCL that answers, as ncclGetVersion gives it. */
enum { TRI_NCCL_RAS_SINCE = 22400 };

/* Ask, on a thread of its own, for at most 2 s, and log the answer line by line. Does nothing while
 * an earlier question is still open (its answer is about all communicators), or if NCCL_RAS_ENABLE is
 * 0. Any thread; does not wait. tri_nccl_quiesce and the exit of the process wait for the thread. */
void tri_nccl_ras_ask(void);

#endif
