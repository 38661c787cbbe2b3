/* Checks of a call's arguments. */
#include "csrc/core/validate.h"

#include <stdint.h>
#include <stdio.h>

#include "csrc/base/types.h"
#include "csrc/core/device.h"

/* "`name`" or "`name[index]`". */
struct label {
    char text[64];
};

static struct label label(struct tri_argument argument)
{
    struct label label;
    if (argument.index == TRI_NO_INDEX)
        (void)snprintf(label.text, sizeof label.text, "`%s`", argument.name);
    else
        (void)snprintf(label.text, sizeof label.text, "`%s[%zu]`", argument.name, argument.index);
    return label;
}

trib_status tri_check_dtype(const struct trib_comm *comm, int operation, trib_dtype dtype)
{
    if (tri_dtype_valid(dtype))
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                         "`dtype` is %d; expected one of TRIB_F16 to TRIB_U64", dtype);
}

trib_status tri_check_op(const struct trib_comm *comm, int operation, trib_op op)
{
    if (tri_op_valid(op))
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                         "`op` is %d%s%s; expected one of TRIB_SUM to TRIB_AVG", op,
                         tri_dtype_valid(op) ? ", the type " : "",
                         tri_dtype_valid(op) ? trib_dtype_name(op) : "");
}

trib_status tri_check_peer(const struct trib_comm *comm, int operation, int32_t peer)
{
    if (peer >= 0 && peer < comm->size)
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                         "`%s` is %d; expected a rank, 0 to %d", tri_operations[operation].partner,
                         peer, comm->size - 1);
}

static trib_status bad_stream(const struct trib_comm *comm, int operation, trib_stream stream,
                              enum tri_fault fault, size_t found)
{
    if (fault == TRI_FAULT_OTHER_DEVICE)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_STREAM,
                             "`stream` belongs to device %zu; expected a stream of device %d: pass "
                             "this rank's own",
                             found, comm->device);
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_STREAM,
                         "`stream` (%p) is no stream of backend \"%s\": create it with "
                         "trib_stream_create, or pass NULL for the default stream",
                         stream, comm->backend->name);
}

trib_status tri_check_stream(const struct trib_comm *comm, int operation, trib_stream stream)
{
    if (tri_stream_is_per_thread(stream))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_STREAM,
                             "`stream` is the per-thread default stream, which is another stream "
                             "on every thread: create one, or pass NULL for the default stream");
    if ((comm->flags & TRIB_UNCHECKED) != 0)
        return TRIB_OK;
    size_t found = 0;
    const enum tri_fault fault = comm->backend->device->check_stream(comm->device, stream, &found);
    return fault == TRI_FAULT_NONE ? TRIB_OK : bad_stream(comm, operation, stream, fault, found);
}

trib_status tri_check_not_captured(const struct trib_comm *comm, int operation, trib_stream stream)
{
    const struct tri_device_ops *device = comm->backend->device;
    return device->capturing == NULL || !device->capturing(comm->device, stream)
               ? TRIB_OK
               : tri_fail_captured(comm, operation);
}

trib_status tri_fail_captured(const struct trib_comm *comm, int operation)
{
    return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                         "`stream` is being captured into a CUDA graph, and with TRIB_MATCH the "
                         "ranks compare each call before it is queued, but nothing runs in a "
                         "capture: capture calls of a communicator without TRIB_MATCH and "
                         "TRIB_COMPARED, or call it outside of the graph");
}

trib_status tri_check_extent(const struct trib_comm *comm, int operation,
                             const struct tri_buffer *buffer, size_t *bytes)
{
    const void *data = buffer->data;
    if (!tri_bytes(bytes, buffer->count, buffer->blocks, buffer->dtype))
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_ARGUMENT,
                             "%s would hold %zu times %zu elements of %s, which is more than any "
                             "memory: check `count`",
                             label(buffer->argument).text, buffer->blocks, buffer->count,
                             trib_dtype_name(buffer->dtype));
    if (data == NULL)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                             "%s is NULL; expected %zu bytes on device %d",
                             label(buffer->argument).text, *bytes, comm->device);
    if (((uintptr_t)data & (trib_dtype_size(buffer->dtype) - 1)) != 0) /* a power of 2 */
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                             "%s (%p) is misaligned: %s needs a multiple of %zu",
                             label(buffer->argument).text, data, trib_dtype_name(buffer->dtype),
                             trib_dtype_size(buffer->dtype));
    if (*bytes > UINTPTR_MAX - (uintptr_t)data)
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                             "%s (%p) and %zu bytes go beyond the end of memory: check `count`",
                             label(buffer->argument).text, data, *bytes);
    return TRIB_OK;
}

static trib_status bad_memory(const struct trib_comm *comm, int operation,
                              struct tri_argument argument, const void *data, size_t bytes,
                              enum tri_fault fault, size_t found)
{
    switch (fault) {
    case TRI_FAULT_NOT_DEVICE_MEMORY:
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                             "%s (%p) is host memory; expected %zu bytes of device %d: allocate "
                             "there, and copy first",
                             label(argument).text, data, bytes, comm->device);
    case TRI_FAULT_OTHER_DEVICE:
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                             "%s (%p) is memory of device %zu; expected memory of device %d: pass "
                             "this rank's own buffer",
                             label(argument).text, data, found, comm->device);
    default:
        return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                             "%s (%p) is too short: the call touches %zu bytes, and its allocation "
                             "ends after %zu: check `count` and the pointer",
                             label(argument).text, data, bytes, found);
    }
}

trib_status tri_ask_memory(const struct trib_comm *comm, int operation,
                           struct tri_argument argument, const void *data, size_t bytes,
                           size_t *reach)
{
    size_t found = 0;
    const enum tri_fault fault =
        comm->backend->device->check_buffer(comm->device, data, bytes, &found);
    *reach = found > bytes ? found : bytes;
    return fault == TRI_FAULT_NONE
               ? TRIB_OK
               : bad_memory(comm, operation, argument, data, bytes, fault, found);
}

/* Asks the backend whether the device may use the memory; does nothing with TRIB_UNCHECKED.
 * bytes > 0. */
static trib_status check_memory(const struct trib_comm *comm, int operation,
                                struct tri_argument argument, const void *data, size_t bytes)
{
    size_t reach;
    return (comm->flags & TRIB_UNCHECKED) != 0
               ? TRIB_OK
               : tri_ask_memory(comm, operation, argument, data, bytes, &reach);
}

trib_status tri_check_buffer(const struct trib_comm *comm, int operation,
                             const struct tri_buffer *buffer, size_t *bytes)
{
    TRI_TRY(tri_check_extent(comm, operation, buffer, bytes));
    return check_memory(comm, operation, buffer->argument, buffer->data, *bytes);
}

size_t tri_known_bytes(const struct trib_comm *comm, const void *data)
{
    size_t found = 0;
    if ((comm->flags & TRIB_UNCHECKED) != 0 ||
        comm->backend->device->check_buffer(comm->device, data, 1, &found) != TRI_FAULT_NONE)
        return 0;
    return found;
}

trib_status tri_check_block(const struct trib_comm *comm, int operation,
                            struct tri_argument argument, const void *data, size_t known,
                            size_t offset, size_t bytes)
{
    const char *block = (const char *)data + offset;
    if (offset <= known && bytes <= known - offset)
        return TRIB_OK;
    TRI_TRY(check_memory(comm, operation, argument, block, bytes));
    if (known == 0 || tri_known_bytes(comm, block) != 0)
        return TRIB_OK;
    return bad_memory(comm, operation, argument, data, offset + bytes, TRI_FAULT_TOO_SHORT, known);
}

trib_status tri_check_factor_op(const struct trib_comm *comm, int operation, trib_op op)
{
    if (op == TRIB_SUM)
        return TRIB_OK;
    return tri_fail_call(
        comm, operation, TRIB_ERR_UNSUPPORTED,
        "`op` is %s, and options.factor is for sums: pass TRIB_SUM (for an average "
        "with the factor divided by the number of ranks)",
        trib_op_name(op));
}

trib_status tri_check_scalar(const struct trib_comm *comm, int operation, const char *name,
                             const float *scalar)
{
    const struct tri_buffer buffer = {.argument = {name, TRI_NO_INDEX},
                                      .data = scalar,
                                      .blocks = 1,
                                      .count = 1,
                                      .dtype = TRIB_F32};
    size_t bytes = 0;
    return scalar == NULL ? TRIB_OK : tri_check_buffer(comm, operation, &buffer, &bytes);
}

/* One buffer of a call, checked by tri_check_extent. */
struct side {
    struct tri_buffer buffer;
    size_t bytes;
    bool used;
};

/* Asks about the lower buffer first: its allocation often holds the other one too. That saves the
 * second question, the most expensive part of a call's checks. */
static trib_status check_both(const struct trib_comm *comm, int operation, const struct side *low,
                              const struct side *high)
{
    if ((comm->flags & TRIB_UNCHECKED) != 0)
        return TRIB_OK;
    if ((uintptr_t)low->buffer.data > (uintptr_t)high->buffer.data) {
        const struct side *other = low;
        low = high;
        high = other;
    }
    size_t reach;
    TRI_TRY(tri_ask_memory(comm, operation, low->buffer.argument, low->buffer.data, low->bytes,
                           &reach));
    const size_t apart = (uintptr_t)high->buffer.data - (uintptr_t)low->buffer.data;
    if (apart <= reach && high->bytes <= reach - apart)
        return TRIB_OK;
    return tri_ask_memory(comm, operation, high->buffer.argument, high->buffer.data, high->bytes,
                          &reach);
}

/* This rank uses both buffers: they are exactly "in place", or apart. */
static trib_status check_apart(const struct trib_comm *comm, int operation,
                               const struct tri_call *call, size_t send_bytes, size_t recv_bytes)
{
    const uintptr_t send = (uintptr_t)call->send, recv = (uintptr_t)call->recv;
    if (send + send_bytes <= recv || recv + recv_bytes <= send)
        return TRIB_OK;
    const char *rule = "they must not overlap";
    switch (tri_operations[operation].place) {
    case TRI_SAME:
        if (send == recv)
            return TRIB_OK;
        rule = "in place means recv == send";
        break;
    case TRI_SEND_IN_RECV:
        if (send == recv + (size_t)comm->rank * send_bytes)
            return TRIB_OK;
        rule = "in place means that send is block `rank` of recv";
        break;
    case TRI_RECV_IN_SEND:
        if (recv == send + (size_t)comm->rank * recv_bytes)
            return TRIB_OK;
        rule = "in place means that recv is block `rank` of send";
        break;
    default:
        break;
    }
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                         "`send` (%p, %zu bytes) and `recv` (%p, %zu bytes) overlap: %s",
                         call->send, send_bytes, call->recv, recv_bytes, rule);
}

/* Does this rank use the buffer that `side` describes? */
static bool uses(const struct trib_comm *comm, uint8_t side, const struct tri_call *call)
{
    return side == TRI_EVERYWHERE || (side == TRI_AT_ROOT && call->peer == comm->rank);
}

static struct side side_of(const struct trib_comm *comm, const struct tri_call *call,
                           const char *name, const void *data, bool blocks)
{
    return (struct side){.buffer = {.argument = {name, TRI_NO_INDEX},
                                    .data = data,
                                    .blocks = blocks ? (size_t)comm->size : 1,
                                    .count = call->count,
                                    .dtype = call->dtype}};
}

/* The buffers of a call whose other arguments are valid; count > 0. */
static trib_status check_buffers(const struct trib_comm *comm, int operation,
                                 const struct tri_call *call)
{
    const struct tri_operation *traits = &tri_operations[operation];
    struct side send = side_of(comm, call, "send", call->send, traits->send_blocks);
    struct side recv = side_of(comm, call, "recv", call->recv, traits->recv_blocks);
    send.used = uses(comm, traits->send, call);
    recv.used = uses(comm, traits->recv, call);
    if (send.used)
        TRI_TRY(tri_check_extent(comm, operation, &send.buffer, &send.bytes));
    if (recv.used)
        TRI_TRY(tri_check_extent(comm, operation, &recv.buffer, &recv.bytes));
    if (send.used && recv.used) {
        TRI_TRY(check_apart(comm, operation, call, send.bytes, recv.bytes));
        return check_both(comm, operation, &send, &recv);
    }
    const struct side *only = send.used ? &send : &recv;
    return only->used ? check_memory(comm, operation, only->buffer.argument, only->buffer.data,
                                     only->bytes)
                      : TRIB_OK;
}

/* For a call whose type and op are valid. */
static trib_status check_factor(const struct trib_comm *comm, int operation,
                                const struct tri_call *call)
{
    if (!tri_dtype_is_float(call->dtype))
        return tri_fail_call(comm, operation, TRIB_ERR_UNSUPPORTED,
                             "`dtype` is %s; options.factor is for f16, bf16, f32 and f64",
                             trib_dtype_name(call->dtype));
    return tri_check_factor_op(comm, operation, call->op);
}

/* The place of the factor, for a call whose other arguments are valid; count > 0. */
static trib_status check_factor_word(const struct trib_comm *comm, int operation,
                                     const struct tri_call *call)
{
    const float *word = call->factor.device;
    const uintptr_t at = (uintptr_t)word, recv = (uintptr_t)call->recv;
    TRI_TRY(tri_check_scalar(comm, operation, "options.device_factor", word));
    if (word == NULL || at + sizeof *word <= recv ||
        at >= recv + call->count * trib_dtype_size(call->dtype))
        return TRIB_OK;
    return tri_fail_call(comm, operation, TRIB_ERR_INVALID_BUFFER,
                         "`options.device_factor` (%p) overlaps `recv` (%p, %zu elements), which "
                         "the call writes: give it memory of its own",
                         (const void *)word, call->recv, call->count);
}

trib_status tri_check_call(const struct trib_comm *comm, int operation, const struct tri_call *call)
{
    const struct tri_operation *traits = &tri_operations[operation];
    if (operation == TRI_BARRIER)
        return tri_check_stream(comm, operation, call->stream);
    TRI_TRY(tri_check_dtype(comm, operation, call->dtype));
    if (traits->reduces)
        TRI_TRY(tri_check_op(comm, operation, call->op));
    if (call->scaled)
        TRI_TRY(check_factor(comm, operation, call));
    if (traits->partner != NULL)
        TRI_TRY(tri_check_peer(comm, operation, call->peer));
    TRI_TRY(tri_check_stream(comm, operation, call->stream));
    if (call->count == 0)
        return TRIB_OK;
    TRI_TRY(check_buffers(comm, operation, call));
    return call->scaled ? check_factor_word(comm, operation, call) : TRIB_OK;
}
