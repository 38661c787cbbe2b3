/* Waiting for steps that have ended, on the reducer's own stream, which waits for their ends: whether
 * or not the stream of the finish could be made to wait for it. */
#include "csrc/core/wait.h"

#include "csrc/base/clock.h"
#include "csrc/core/room.h"
#include "csrc/core/validate.h"
#include "csrc/reducer/reducer.h"
#include "csrc/reducer/states.h"

enum { ASK_NS = 100000000 }; /* between two questions for errors of the backend's library */

static trib_status late(const struct trib_reducer *reducer, uint32_t timeout_ms)
{
    return tri_fail_call(reducer->comm, TRI_REDUCER_WAIT, TRIB_ERR_TIMEOUT,
                         "after %u ms a step of this reducer is still queued, and uses its "
                         "gradients; the communicator is as before: wait again, or abort it",
                         timeout_ms);
}

/* Has all that was queued run? If the reducer's own stream does not tell, the event does; without one
 * the end of the step is unknown. No stream of the caller's is asked: it may be gone. */
static trib_status ask(const struct trib_reducer *reducer, bool *out)
{
    TRI_TRY(reducer->backend->device->stream_query(reducer->device, reducer->stream, out));
    *out = *out && !(reducer->apart && tri_workspace_in_use(&reducer->memory));
    return TRIB_OK;
}

/* An abort ends collectives, and so this wait. */
trib_status tri_reducer_wait(struct trib_reducer *reducer, uint32_t timeout_ms)
{
    const uint64_t begin = tri_now_ns();
    const uint64_t end = timeout_ms == TRIB_NO_TIMEOUT ? UINT64_MAX : tri_deadline_ns(timeout_ms);
    uint64_t ask_ns = begin + ASK_NS;
    bool done = false;
    if (tri_capture_of(reducer->comm, reducer->stream) != 0)
        return tri_fail_call(
            reducer->comm, TRI_REDUCER_WAIT, TRIB_ERR_INVALID_USAGE,
            "a CUDA graph is capturing a step, which so does not run: wait after a "
            "launch of the graph, on the stream of the launch");
    (void)tri_reducer_rejoin(reducer);
    for (;;) {
        TRI_TRY(ask(reducer, &done));
        const uint64_t now = tri_now_ns();
        if (done || now >= end)
            break;
        if (now >= ask_ns) {
            (void)tri_abort_ask(reducer->comm->state);
            ask_ns = now + ASK_NS;
        }
        tri_wait_nap(begin, end);
    }
    if (!done)
        return late(reducer, timeout_ms);
    tri_workspace_passed(&reducer->memory);
    tri_reducer_states_passed(reducer);
    return TRIB_OK;
}
