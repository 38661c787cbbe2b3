/* The peers: what a user would do without Tributary. Both queue on the streams of struct bench. */
#ifndef TRI_BENCHES_PEER_H
#define TRI_BENCHES_PEER_H

#include "benches/bench.h"

/* host: copying as many bytes as the rank's larger buffer holds, in the stream. */
extern const struct bench_peer bench_peer_memcpy;

/* nccl: the plain NCCL call. Only in a build with NCCL. */
extern const struct bench_peer bench_peer_nccl;

#endif
