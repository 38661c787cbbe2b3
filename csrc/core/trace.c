/* Names of communicators and calls, for a profiler. */
#include "csrc/core/trace.h"

#include <inttypes.h>

#include "csrc/base/environment.h"
#include "csrc/base/lock.h"
#include "csrc/base/log.h"
#include "csrc/base/text.h"
#include "csrc/base/types.h"
#include "csrc/core/operation.h"
#include "csrc/tracer.h"

enum { TEXT_SIZE = 192 };

_Atomic bool tri_trace_on;

static bool ask(void)
{
    if (!tri_environment_asks("TRIBUTARY_NVTX"))
        return false;
    if (tri_tracer == NULL) {
        tri_log(TRIB_LOG_WARN, "TRIBUTARY_NVTX is set, but this build has no NVTX: its header "
                               "nvtx3/nvToolsExt.h was not found");
        return false;
    }
    return tri_tracer->begin();
}

/* The ranges of one rank of one communicator. Equal numbers of two would mix their names only. */
static uint32_t category_of(const struct trib_comm *comm)
{
    const uint32_t folded =
        (uint32_t)(comm->identity ^ comm->identity >> 32) + (uint32_t)comm->rank;
    return folded == 0 ? 1 : folded;
}

static void name(const struct trib_comm *comm)
{
    char data[TEXT_SIZE];
    struct tri_text text = {.data = data, .room = sizeof data};
    tri_text_add(&text, "rank %d of %d of communicator %s, device %d of %s", (int)comm->rank,
                 (int)comm->size, tri_comm_label(comm).text, (int)comm->device,
                 comm->backend->name);
    tri_tracer->name(category_of(comm), data);
}

void tri_trace_begin(const struct trib_comm *comm)
{
    static struct tri_lock lock = TRI_LOCK_INIT; /* guards `asked` */
    static bool asked;
    tri_lock(&lock);
    if (!asked)
        atomic_store(&tri_trace_on, ask());
    asked = true;
    tri_unlock(&lock);
    if (atomic_load(&tri_trace_on))
        name(comm);
}

void tri_trace_open(const struct trib_comm *comm, const struct tri_recorded *call)
{
    char data[TEXT_SIZE];
    struct tri_text text = {.data = data, .room = sizeof data};
    tri_text_add(&text, "trib_%s %" PRIu64, tri_operations[call->operation].name, call->count);
    if (call->dtype != 0)
        tri_text_add(&text, " %s", trib_dtype_name(call->dtype));
    if (call->algorithm != NULL)
        tri_text_add(&text, " %s", call->algorithm);
    /* Without a type `count` is no number of elements, and the payload 0. */
    tri_tracer->push(data, category_of(comm), call->count * trib_dtype_size(call->dtype));
}

void tri_trace_close(void)
{
    tri_tracer->pop();
}
