/* Steps: collectives with one count. By themselves, in batches, of a group. */
#include <string.h>

#include "tests/fuzz/api/call.h"

enum { CALLS = 3 };
struct step {
    struct world *world;
    struct call calls[CALLS];
    int n;
    bool batch;
    trib_stream streams[FUZZ_RANKS];
    struct verdicts verdicts;
};

/* ---------------------------------------------------------------------------------------- picking */

/* Where the buffers of call `slot` are on one rank: `far` bytes apart, or what `where` says. */
static struct buffers pick_buffers(struct world *world, const struct call *call, int r, int slot,
                                   uint32_t where, size_t far)
{
    const struct traits *traits = &call_traits[call->kind];
    const size_t element = trib_dtype_size(call->dtype[r]) + (trib_dtype_size(call->dtype[r]) == 0);
    const size_t base = (size_t)slot * (ARENA / 4);
    struct buffers at = {base, base + far};
    if (where < 8)
        return (struct buffers){at.send + element * where, at.recv + element * (where / 2)};
    if (where < 13) { /* in place */
        const size_t send_bytes = call_bytes(world, call, r, traits->send_blocks);
        const size_t recv_bytes = call_bytes(world, call, r, traits->recv_blocks);
        if (traits->place == SAME)
            at.recv = at.send;
        else if (traits->place == SEND_IN_RECV)
            at.send = at.recv + (size_t)r * send_bytes;
        else
            at.recv = at.send + (size_t)r * recv_bytes;
        /* A buffer that begins outside of every allocation is the caller's word. */
        return (struct buffers){at.send % ARENA, at.recv % ARENA};
    }
    if (where == 13)
        return (struct buffers){bytes_u16(world->in) % ARENA, bytes_u16(world->in) % ARENA};
    if (where == 14)
        return bytes_rare(world->in, 2) ? (struct buffers){SIZE_MAX, at.recv}
                                        : (struct buffers){at.send, SIZE_MAX};
    at.recv += r + 1 < world->size ? FOREIGN : 0;
    return at;
}

static size_t pick_count(struct world *world, bool small)
{
    struct bytes *in = world->in;
    if (small)
        return 1 + bytes_below(in, 8);
    const uint32_t how = bytes_below(in, 16);
    if (how == 15)
        return bytes_rare(in, 2) ? SIZE_MAX - bytes_u8(in) : bytes_u16(in);
    return how == 14 ? bytes_u8(in) : 1 + bytes_below(in, 32);
}

static void pick_factor(struct world *world, struct call *call)
{
    static const double factors[] = {1, 0.5, 2, 0};
    static const float floats[] = {1, 0.5f, 2};
    const uint32_t which = bytes_below(world->in, 4);
    call->factor = factors[which];
    if (call->factor != 0 && bytes_rare(world->in, 2))
        call->device_factor = &floats[which];
    call->factor_in_recv = call->device_factor != NULL && bytes_rare(world->in, 8);
}

/* The same on every rank, but for a share of calls that one rank makes otherwise. */
static void pick_call(struct step *step, int slot)
{
    struct world *world = step->world;
    struct bytes *in = world->in;
    struct call *call = &step->calls[slot];
    call->kind = (enum kind)bytes_below(in, world->group != NULL ? 2 : KINDS);
    const bool bad = bytes_rare(in, 16);
    const trib_dtype dtype =
        bad && bytes_rare(in, 2) ? (trib_dtype)bytes_u8(in) : 1 + (trib_dtype)bytes_below(in, 10);
    const trib_op op =
        bad && bytes_rare(in, 2) ? (trib_op)bytes_u8(in) : 1 + (trib_op)bytes_below(in, 5);
    const int32_t root = bad && bytes_rare(in, 2) ? (int32_t)bytes_u32(in)
                                                  : (int32_t)bytes_below(in, (uint32_t)world->size);
    const size_t count = pick_count(world, step->n > 1);
    /* No call of a batch may use another's output. */
    const uint32_t where = bytes_below(in, step->n > 1 ? 13 : 16);
    const size_t far = step->n > 1 ? ARENA / 8 : ARENA / 2;
    call->seed = ++world->seed;
    if (call->kind == WITH)
        pick_factor(world, call);
    for (int r = 0; r < world->size; r++) {
        call->dtype[r] = dtype;
        call->op[r] = call->kind == WITH && call->factor != 0 && !bad ? TRIB_SUM : op;
        call->root[r] = root;
        call->count[r] = count;
        call->at[r] = pick_buffers(world, call, r, slot, where, far);
    }
}

/* On one rank the call is another one. (The ranks of a group differ in their buffers alone.) */
static void deviate(struct step *step)
{
    struct world *world = step->world;
    struct call *call = &step->calls[0];
    const int r = (int)bytes_below(world->in, (uint32_t)world->size);
    const bool alone = world->hasty || (world->flags & TRIB_MATCH) == 0;
    if (call->count[r] == 0) /* nothing to do, whatever else is said */
        return;
    switch (world->group != NULL ? 4 : bytes_below(world->in, 5)) {
    case 0:
        call->count[r] += 1;
        break;
    case 1:
        call->dtype[r] = call->dtype[r] == TRIB_F32 ? TRIB_I32 : TRIB_F32;
        break;
    case 2:
        call->op[r] = call->op[r] == TRIB_MIN ? TRIB_MAX : TRIB_MIN;
        break;
    case 3:
        call->root[r] = (call->root[r] + 1) % world->size;
        break;
    default:
        if (alone)
            call->at[r] = pick_buffers(world, call, r, 0, 13, 0);
    }
}

/* May the call be made at all? Without checks a bad pointer is the caller's crash; a call of one
 * rank alone would make the others wait for long. */
static bool is_safe(const struct world *world, const struct call *call)
{
    int valid = 0;
    for (int r = 0; r < world->size; r++)
        valid += call_is_valid(world, call, r);
    if (valid == world->size)
        return true;
    if ((world->flags & TRIB_UNCHECKED) != 0)
        return false;
    return valid == 0 || world->hasty || (world->flags & TRIB_MATCH) == 0;
}

/* ---------------------------------------------------------------------------------------- calling */

static uint8_t *pointer(const struct world *world, int r, size_t at)
{
    if (at == SIZE_MAX)
        return NULL;
    if (at >= FOREIGN)
        return world->ranks[(r + 1) % FUZZ_RANKS].memory + (at - FOREIGN);
    return world->ranks[r].memory + at;
}

static trib_status make_call(const struct step *step, const struct call *call, int r)
{
    const struct world *world = step->world;
    trib_comm *comm = world->ranks[r].comm;
    const void *send = pointer(world, r, call->at[r].send);
    void *recv = pointer(world, r, call->at[r].recv);
    const size_t count = call->count[r];
    const trib_dtype dtype = call->dtype[r];
    const trib_op op = call->op[r];
    const int32_t root = call->root[r];
    const trib_stream stream = step->streams[r];
    trib_call_options options = TRIB_CALL_OPTIONS_INIT;
    options.flags = call->factor != 0 && call->device_factor == NULL ? TRIB_CALL_FACTOR : 0;
    options.factor = call->factor;
    options.device_factor = call->factor_in_recv ? recv : call->device_factor;
    switch (call->kind) {
    case ALLREDUCE:
        return STATUS(trib_allreduce(comm, send, recv, count, dtype, op, stream));
    case BROADCAST:
        return STATUS(trib_broadcast(comm, send, recv, count, dtype, root, stream));
    case WITH:
        return STATUS(trib_allreduce_with(comm, send, recv, count, dtype, op, &options, stream));
    case REDUCE:
        return STATUS(trib_reduce(comm, send, recv, count, dtype, op, root, stream));
    case ALLGATHER:
        return STATUS(trib_allgather(comm, send, recv, count, dtype, stream));
    case REDUCE_SCATTER:
        return STATUS(trib_reduce_scatter(comm, send, recv, count, dtype, op, stream));
    case ALLTOALL:
        return STATUS(trib_alltoall(comm, send, recv, count, dtype, stream));
    case GATHER:
        return STATUS(trib_gather(comm, send, recv, count, dtype, root, stream));
    default:
        return STATUS(trib_scatter(comm, send, recv, count, dtype, root, stream));
    }
}

/* One rank's part: its calls, in a batch or not. A call that fails ends the batch with its status. */
static void make_part(int r, void *argument)
{
    struct step *step = argument;
    trib_comm *comm = step->world->ranks[r].comm;
    trib_status status = step->batch ? STATUS(trib_batch_begin(comm)) : TRIB_OK;
    for (int i = 0; i < step->n && status == TRIB_OK; i++)
        status = make_call(step, &step->calls[i], r);
    if (step->batch) {
        const trib_status end = STATUS(trib_batch_end(comm));
        if (fuzz_is_mistake(status) && comm != NULL) /* or it has ended since */
            FUZZ_CHECK(end == status || (fuzz_is_state(end) && !world_is_sound(step->world)));
        status = status == TRIB_OK ? end : status;
    }
    step->verdicts.status[r] = status;
}

static void make_group_call(struct step *step)
{
    struct world *world = step->world;
    const struct call *call = &step->calls[0];
    const void *send[FUZZ_RANKS] = {NULL};
    void *recv[FUZZ_RANKS] = {NULL};
    bool valid = true;
    for (int r = 0; r < world->size; r++) {
        send[r] = pointer(world, r, call->at[r].send);
        recv[r] = pointer(world, r, call->at[r].recv);
        valid = valid && step->verdicts.valid[r];
    }
    const trib_status status =
        call->kind == ALLREDUCE
            ? STATUS(trib_group_allreduce(world->group, send, recv, call->count[0], call->dtype[0],
                                          call->op[0], step->streams))
            : STATUS(trib_group_broadcast(world->group, send, recv, call->count[0], call->dtype[0],
                                          call->root[0], step->streams));
    for (int r = 0; r < world->size; r++) {
        step->verdicts.status[r] = status;
        step->verdicts.valid[r] = valid;
    }
}

/* --------------------------------------------------------------------------------------- results */

static void fill(struct step *step, const struct call *call, int r)
{
    struct world *world = step->world;
    const struct traits *traits = &call_traits[call->kind];
    const struct reference inputs = call_inputs(world, call);
    const size_t bytes = call_bytes(world, call, r, traits->send_blocks);
    uint8_t data[ARENA];
    if (!call_uses(call, r, traits->send) || bytes == 0)
        return;
    reference_input(data, &inputs, r, 0, bytes / trib_dtype_size(call->dtype[r]));
    world_fill(world, r, call->at[r].send, data, bytes, step->streams[r]);
}

/* `known`: all ranks have queued the call, so its result is too. */
static void note_results(struct step *step, const struct call *call, bool known)
{
    struct world *world = step->world;
    const struct traits *traits = &call_traits[call->kind];
    uint8_t data[ARENA];
    for (int r = 0; r < world->size; r++) {
        const size_t bytes = call_bytes(world, call, r, traits->recv_blocks);
        if (!world_may_write(&step->verdicts, r) || bytes == 0 || !call_uses(call, r, traits->recv))
            continue;
        if (known)
            call_expect(world, call, r, data);
        world_result(world, r, call->at[r].recv, known ? data : NULL, bytes);
    }
}

/* ------------------------------------------------------------------------------------------- step */

static void pick_calls(struct step *step)
{
    struct world *world = step->world;
    step->batch = world->group == NULL && bytes_rare(world->in, 4);
    step->n = step->batch ? 1 + (int)bytes_below(world->in, CALLS) : 1;
    for (int i = 0; i < step->n; i++)
        pick_call(step, i);
    if (world->size > 1 && step->n == 1 && bytes_rare(world->in, 16))
        deviate(step);
    for (int i = 0; i < step->n; i++)
        fuzz_trace("  kind %d count %zu dtype %d op %d root %d send %zu recv %zu factor %g%s\n",
                   step->calls[i].kind, step->calls[i].count[0], step->calls[i].dtype[0],
                   step->calls[i].op[0], step->calls[i].root[0], step->calls[i].at[0].send,
                   step->calls[i].at[0].recv, step->calls[i].factor,
                   step->batch ? ", in a batch" : "");
}

/* Judge the calls, and queue the ranks' inputs if there will be a result. */
static void prepare(struct step *step, int stream)
{
    struct world *world = step->world;
    bool whole = true;
    for (int r = 0; r < world->size; r++) {
        bool valid = world->group != NULL || world->ranks[r].comm != NULL;
        for (int i = 0; i < step->n; i++)
            valid = valid && call_is_valid(world, &step->calls[i], r);
        step->verdicts.valid[r] = valid;
        whole = whole && valid;
        step->streams[r] = world_stream(world, r, stream);
    }
    step->verdicts.differs = whole && call_differs(world, &step->calls[0]);
    for (int i = 0; i < step->n && whole && !step->verdicts.differs; i++)
        for (int r = 0; r < world->size; r++)
            fill(step, &step->calls[i], r);
}

void step_collective(struct world *world)
{
    struct step step = {.world = world};
    const int stream = (int)bytes_below(world->in, 1 + STREAMS);
    pick_calls(&step);
    for (int i = 0; i < step.n; i++)
        if (!is_safe(world, &step.calls[i]))
            return;
    prepare(&step, stream);
    if (world->group != NULL)
        make_group_call(&step);
    else
        world_each(world, false, make_part, &step);
    const bool known = world_judge(world, &step.verdicts);
    for (int i = 0; i < step.n; i++)
        note_results(&step, &step.calls[i], known);
    if (step.verdicts.differs && !call_is_compared(&step.calls[0]))
        world->uneven = true;
}
