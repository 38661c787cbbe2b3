/* The nccl backend over the fake, as core uses it. */
#ifndef TRI_TESTS_NCCL_FAKE_FIXTURE_H
#define TRI_TESTS_NCCL_FAKE_FIXTURE_H

#include "csrc/backend.h"

extern const struct tri_backend tri_backend_nccl;

const struct tri_transport_ops *transports(void);
const struct tri_device_ops *devices(void);

/* A call of 4 floats, a sum. */
struct tri_call one_call(struct tri_transport *transport, enum tri_kind kind, float *send,
                         float *recv, trib_stream stream);
/* An allreduce, as core issues it. */
trib_status allreduce(struct tri_transport *transport, trib_stream stream);
/* Of an abort state. Atomic: an abort sets it, and so does the thread that destroys what NCCL has. */
uint32_t load_flag(const uint32_t *flag);

#endif
