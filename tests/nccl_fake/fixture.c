/* The nccl backend over the fake, as core uses it. */
#include "tests/nccl_fake/fixture.h"

#include "csrc/base/abort.h"

const struct tri_transport_ops *transports(void)
{
    return tri_backend_nccl.transport;
}

const struct tri_device_ops *devices(void)
{
    return tri_backend_nccl.device;
}

struct tri_call one_call(struct tri_transport *transport, enum tri_kind kind, float *send,
                         float *recv, trib_stream stream)
{
    return (struct tri_call){.kind = kind,
                             .transport = transport,
                             .send = send,
                             .recv = recv,
                             .count = 4,
                             .dtype = TRIB_F32,
                             .op = TRIB_SUM,
                             .stream = stream};
}

trib_status allreduce(struct tri_transport *transport, trib_stream stream)
{
    static float memory[4];
    struct trib_abort *state = transports()->abort_state(transport);
    const struct tri_call call = one_call(transport, TRI_ALLREDUCE, memory, memory, stream);
    if (!tri_abort_register(state))
        return tri_abort_status(state);
    const trib_status status = transports()->collective(&call, 1);
    tri_abort_unregister(state);
    return status != TRIB_OK ? status : tri_abort_status(state);
}

uint32_t load_flag(const uint32_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_SEQ_CST);
}
