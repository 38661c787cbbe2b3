#include "csrc/core/remote_ends.h"

#include <stdio.h>

#include "csrc/base/clock.h"
#include "csrc/core/communicator.h"
#include "csrc/core/remote_state.h"

/* How long answers of those who were told of an end may take that nobody hears later: well under a millisecond, if
 * their processes run. */
enum { ANSWERS_NS = 10000000, NAP_NS = 50000 };

static void notify(const struct tri_remote *remote)
{
    if (remote->comm->recorder != NULL)
        remote->wake();
}

/* ------------------------------------------------------------------------------------------ hold */

/* May a collective of it go on? A process may live though its connection is lost. Locked. */
static bool is_to_stop(const struct tri_remote *remote, int32_t rank)
{
    const struct tri_remote_of *of = &remote->of[rank];
    return of->state != TRI_REMOTE_HERE && of->state != TRI_REMOTE_LEFT && !of->stopped;
}

/* Locked. */
static void let_go(struct tri_remote *remote)
{
    if (remote->holds)
        tri_abort_let_go(remote->comm->state);
    remote->holds = false;
}

/* After every change of what is known. Locked. */
static void review_hold(struct tri_remote *remote)
{
    bool waits = false;
    if (!remote->raised)
        return;
    for (int32_t rank = 0; rank < remote->comm->size; rank++)
        waits = waits || is_to_stop(remote, rank);
    if (!waits)
        let_go(remote);
}

/* The ranks of a process share an abort state. */
void tri_remote_on_stopped(struct tri_remote *remote, int32_t rank)
{
    tri_lock(&remote->lock);
    for (int32_t other = 0; other < remote->comm->size; other++)
        if (remote->of[other].process == remote->of[rank].process)
            remote->of[other].stopped = true;
    review_hold(remote);
    tri_unlock(&remote->lock);
}

/* ------------------------------------------------------------------------------------------ ends */

/* Another process says that the communicator has ended. */
void tri_remote_on_abort(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                         size_t length)
{
    struct tri_peer_abort abort;
    char text[TRI_DETAIL_SIZE];
    if (!tri_peer_abort_unpack(&abort, bytes, length))
        return;
    for (int32_t i = 0; i < abort.n; i++)
        if (abort.lost[i] >= remote->comm->size)
            return;
    (void)snprintf(text, sizeof text, "told by %s: %.*s",
                   tri_peer_text(&remote->of[rank].address).text, TRI_DETAIL_SIZE - 160,
                   abort.text);
    (void)tri_abort_raise_relayed(remote->comm->state, abort.status, text, abort.lost, abort.n);
    tri_remote_on_stopped(remote, rank);
    notify(remote); /* to report it */
}

/* With the process of a rank all of its ranks are dead. Each is told of by itself, but those that go
 * on should exclude them all from the beginning. */
static int32_t note_dead(struct tri_remote *remote, int32_t rank, const char *text, bool ended,
                         int32_t lost[TRI_LOST_MAX])
{
    int32_t n = 0;
    tri_lock(&remote->lock);
    for (int32_t other = 0; other < remote->comm->size; other++) {
        struct tri_remote_of *of = &remote->of[other];
        if (of->process != remote->of[rank].process || of->state == TRI_REMOTE_LEFT)
            continue;
        of->state = TRI_REMOTE_DEAD;
        of->stopped = of->stopped || ended;
        (void)snprintf(of->death, sizeof of->death, "%s", text);
        if (n < TRI_LOST_MAX)
            lost[n++] = other;
    }
    review_hold(remote);
    tri_unlock(&remote->lock);
    return n;
}

void tri_remote_on_dead(void *context, int32_t rank, const char *text, bool ended)
{
    struct tri_remote *remote = context;
    int32_t lost[TRI_LOST_MAX];
    const int32_t n = note_dead(remote, rank, text, ended, lost);
    (void)tri_abort_raise_lost(remote->comm->state, TRIB_ERR_CLOSED, text, lost, n);
    notify(remote); /* to report it */
}

void tri_remote_on_leaving(void *context)
{
    struct tri_remote *remote = context;
    struct tri_remote_message farewell = {.kind = TRI_REMOTE_FAREWELL};
    /* The caller's, which a failure to send must not replace. */
    const struct tri_detail_copy detail = tri_detail_copy();
    tri_remote_describe_self(&farewell, remote->comm, 0);
    tri_lock(&remote->lock);
    tri_remote_tell_all(remote, &farewell);
    tri_unlock(&remote->lock);
    (void)tri_fail(TRIB_OK, "%s", detail.text);
}

void tri_remote_on_left(void *context, int32_t rank)
{
    struct tri_remote *remote = context;
    tri_lock(&remote->lock);
    remote->of[rank].state = TRI_REMOTE_LEFT;
    review_hold(remote);
    tri_unlock(&remote->lock);
    notify(remote); /* a call whose end nobody notices may wait for it */
}

/* Why the communicator has ended. Locked. */
static void send_abort(struct tri_remote *remote)
{
    const struct trib_comm *comm = remote->comm;
    struct tri_peer_abort abort;
    uint8_t bytes[TRI_PEER_ABORT_MAX];
    const char *why = "";
    abort.status = tri_abort_why(comm->state, &why);
    abort.n = tri_abort_lost(comm->state, abort.lost, TRI_LOST_MAX);
    (void)snprintf(abort.text, sizeof abort.text, "%s", why);
    tri_remote_send_to_all(remote, TRI_PEER_ABORT, bytes, tri_peer_abort_pack(bytes, &abort));
}

/* The communicator has ended: each rank of this process tells each rank elsewhere, because any of
 * them may be about to close. */
static void on_raised(void *context, bool relayed)
{
    static const struct tri_remote_message stopped = {.kind = TRI_REMOTE_STOPPED};
    struct tri_remote *remote = context;
    /* The caller's, which a failure to send must not replace. */
    const struct tri_detail_copy detail = tri_detail_copy();
    tri_lock(&remote->lock);
    if (relayed)
        tri_remote_tell_all(remote, &stopped);
    else
        send_abort(remote);
    remote->raised = true;
    review_hold(remote);
    tri_unlock(&remote->lock);
    (void)tri_fail(TRIB_OK, "%s", detail.text);
}

/* -------------------------------------------------------------------------------------- watching */

void tri_remote_watch(struct tri_remote *remote)
{
    struct trib_abort *state = remote->comm->state;
    tri_abort_hold(state);
    tri_lock(&remote->lock);
    remote->holds = true;
    tri_unlock(&remote->lock);
    remote->observer = (struct tri_abort_observer){.raised = on_raised, .context = remote};
    tri_abort_observe(state, &remote->observer);
}

static bool holds(struct tri_remote *remote)
{
    tri_lock(&remote->lock);
    const bool held = remote->holds;
    tri_unlock(&remote->lock);
    return held;
}

void tri_remote_unwatch(struct tri_remote *remote)
{
    tri_abort_unobserve(remote->comm->state, &remote->observer);
    tri_lock(&remote->lock);
    if (!remote->raised)
        let_go(remote);
    tri_unlock(&remote->lock);
    for (const uint64_t until = tri_now_ns() + ANSWERS_NS; holds(remote) && tri_now_ns() < until;)
        tri_nap_ns(NAP_NS);
}
