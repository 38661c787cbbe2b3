/* One collective with one count: is it valid, and what does it give? */
#include "tests/fuzz/api/call.h"

const struct traits call_traits[KINDS] = {
    [ALLREDUCE] = {BY_ALL, BY_ALL, false, false, true, false, SAME},
    [BROADCAST] = {BY_ROOT, BY_ALL, false, false, false, true, SAME},
    [WITH] = {BY_ALL, BY_ALL, false, false, true, false, SAME},
    [REDUCE] = {BY_ALL, BY_ROOT, false, false, true, true, SAME},
    [ALLGATHER] = {BY_ALL, BY_ALL, false, true, false, false, SEND_IN_RECV},
    [REDUCE_SCATTER] = {BY_ALL, BY_ALL, true, false, true, false, RECV_IN_SEND},
    [ALLTOALL] = {BY_ALL, BY_ALL, true, true, false, false, SAME},
    [GATHER] = {BY_ALL, BY_ROOT, false, true, false, true, SEND_IN_RECV},
    [SCATTER] = {BY_ROOT, BY_ALL, true, false, false, true, RECV_IN_SEND},
};

size_t call_bytes(const struct world *world, const struct call *call, int r, bool blocks)
{
    const size_t element = trib_dtype_size(call->dtype[r]);
    const size_t n = blocks ? (size_t)world->size : 1;
    return call->count[r] > ARENA ? ARENA + 1 : call->count[r] * element * n;
}

bool call_uses(const struct call *call, int r, enum used used)
{
    return used == BY_ALL || call->root[r] == r;
}

static bool range_is_valid(size_t at, size_t bytes, size_t element)
{
    return at < ARENA && at % element == 0 && bytes <= ARENA - at;
}

static bool apart_or_in_place(const struct call *call, int r, size_t send_bytes, size_t recv_bytes)
{
    const size_t send = call->at[r].send, recv = call->at[r].recv;
    if (send + send_bytes <= recv || recv + recv_bytes <= send)
        return true;
    switch (call_traits[call->kind].place) {
    case SAME:
        return send == recv;
    case SEND_IN_RECV:
        return send == recv + (size_t)r * send_bytes;
    default:
        return recv == send + (size_t)r * recv_bytes;
    }
}

static bool scalars_are_valid(const struct world *world, const struct call *call, int r)
{
    const struct traits *traits = &call_traits[call->kind];
    const bool floats = call->dtype[r] >= TRIB_F16 && call->dtype[r] <= TRIB_F64;
    if (call->dtype[r] < TRIB_F16 || call->dtype[r] > TRIB_U64)
        return false;
    if (traits->reduces && (call->op[r] < TRIB_SUM || call->op[r] > TRIB_AVG))
        return false;
    if (call->kind == WITH && call->factor != 0 && (!floats || call->op[r] != TRIB_SUM))
        return false;
    return !traits->rooted || (call->root[r] >= 0 && call->root[r] < world->size);
}

bool call_is_valid(const struct world *world, const struct call *call, int r)
{
    const struct traits *traits = &call_traits[call->kind];
    if (!scalars_are_valid(world, call, r))
        return false;
    if (call->count[r] == 0)
        return true;
    const size_t element = trib_dtype_size(call->dtype[r]);
    const bool sends = call_uses(call, r, traits->send), recvs = call_uses(call, r, traits->recv);
    const size_t send_bytes = call_bytes(world, call, r, traits->send_blocks);
    const size_t recv_bytes = call_bytes(world, call, r, traits->recv_blocks);
    if ((sends && !range_is_valid(call->at[r].send, send_bytes, element)) ||
        (recvs && !range_is_valid(call->at[r].recv, recv_bytes, element)))
        return false;
    if (sends && recvs && !apart_or_in_place(call, r, send_bytes, recv_bytes))
        return false;
    return call->kind != WITH || !call->factor_in_recv || call->factor == 0;
}

static bool matters(const struct call *call, int a, int b)
{
    const struct traits *traits = &call_traits[call->kind];
    return call->count[a] != call->count[b] || call->dtype[a] != call->dtype[b] ||
           (traits->reduces && call->op[a] != call->op[b]) ||
           (traits->rooted && call->root[a] != call->root[b]);
}

bool call_differs(const struct world *world, const struct call *call)
{
    bool any = false;
    for (int r = 1; r < world->size; r++)
        any = any || matters(call, r, 0);
    return any;
}

bool call_is_compared(const struct call *call)
{
    return call->kind <= REDUCE_SCATTER;
}

struct reference call_inputs(const struct world *world, const struct call *call)
{
    return (struct reference){.dtype = call->dtype[0],
                              .op = call_traits[call->kind].reduces ? call->op[0] : REFERENCE_MOVED,
                              .size = world->size,
                              .seed = call->seed};
}

/* Elements of one rank's result, computed from every rank's input. */
void call_expect(const struct world *world, const struct call *call, int r, uint8_t *data)
{
    const struct reference inputs = call_inputs(world, call);
    const size_t n = call->count[0], block = n * trib_dtype_size(call->dtype[0]);
    switch (call->kind) {
    case ALLREDUCE:
    case WITH:
    case REDUCE:
        reference_reduced(data, &inputs, 0, n);
        break;
    case REDUCE_SCATTER:
        reference_reduced(data, &inputs, (size_t)r * n, n);
        break;
    case BROADCAST:
        reference_input(data, &inputs, call->root[0], 0, n);
        break;
    case SCATTER:
        reference_input(data, &inputs, call->root[0], (size_t)r * n, n);
        break;
    default: /* blocks of every rank: the whole of its input, or the part for this one */
        for (int from = 0; from < world->size; from++)
            reference_input(data + (size_t)from * block, &inputs, from,
                            call->kind == ALLTOALL ? (size_t)r * n : 0, n);
    }
    if (call->kind == WITH && call->factor != 0)
        for (size_t i = 0; i < n; i++)
            reference_store(data, call->dtype[0], i,
                            call->factor * reference_load(data, call->dtype[0], i));
}
