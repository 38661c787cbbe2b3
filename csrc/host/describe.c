/* The text of a call, for messages. */
#include "csrc/host/describe.h"

#include <stdio.h>

#include "csrc/base/types.h"

static const char *const names[TRI_KINDS] = {
    [TRI_ALLREDUCE] = "allreduce", [TRI_BROADCAST] = "broadcast",
    [TRI_REDUCE] = "reduce",       [TRI_ALLGATHER] = "allgather",
    [TRI_SEND] = "send",           [TRI_REDUCE_SCATTER] = "reduce_scatter",
    [TRI_RECV] = "recv",           [TRI_BARRIER] = "barrier",
};

/* The text after count and type. */
static void describe_rest(char *text, size_t bytes, const struct tri_call *call)
{
    const int peer = (int)call->peer;
    switch (call->kind) {
    case TRI_ALLREDUCE:
    case TRI_REDUCE_SCATTER:
        (void)snprintf(text, bytes, " (%s%s)", trib_op_name(call->op),
                       call->scaled ? ", with a factor" : "");
        return;
    case TRI_REDUCE:
        (void)snprintf(text, bytes, " (%s, root %d)", trib_op_name(call->op), peer);
        return;
    case TRI_BROADCAST:
        (void)snprintf(text, bytes, ", root %d", peer);
        return;
    case TRI_SEND:
        (void)snprintf(text, bytes, " to rank %d", peer);
        return;
    case TRI_RECV:
        (void)snprintf(text, bytes, " from rank %d", peer);
        return;
    default:
        return;
    }
}

struct tri_description tri_describe(const struct tri_call *call)
{
    struct tri_description description;
    char rest[40] = "";
    if (call->kind == TRI_BARRIER) {
        (void)snprintf(description.text, sizeof description.text, "%s", names[TRI_BARRIER]);
        return description;
    }
    describe_rest(rest, sizeof rest, call);
    (void)snprintf(description.text, sizeof description.text, "%s of %zu %s%s", names[call->kind],
                   call->count, trib_dtype_name(call->dtype), rest);
    return description;
}
