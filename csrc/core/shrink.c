/* A new communicator of the ranks that remain when others are lost.
 *
 * It uses nothing of the old one but its abort state, where the remaining ranks of this process meet
 * (base/meeting.h), and its side channel, over which their processes get one new id (new_id.h). Then
 * they open a communicator as any ranks do. */
#include "csrc/core/shrink.h"

#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/meeting.h"
#include "csrc/base/text.h"
#include "csrc/core/lifecycle.h"
#include "csrc/core/match.h"
#include "csrc/core/new_id.h"
#include "csrc/core/operation.h"
#include "csrc/core/remote.h"
#include "csrc/core/remote_ask.h"

static trib_status check_excluded(const struct trib_comm *comm, const int32_t *excluded, int32_t n)
{
    if (n < 0 || n >= comm->size)
        return tri_fail_call(comm, TRI_SHRINK, TRIB_ERR_INVALID_ARGUMENT,
                             "`n` is %d; expected 0 to %d excluded ranks", (int)n,
                             (int)comm->size - 1);
    if (n > 0 && excluded == NULL)
        return tri_fail_call(comm, TRI_SHRINK, TRIB_ERR_INVALID_ARGUMENT,
                             "`excluded` is NULL; expected `n` ranks, which is %d", (int)n);
    for (int32_t i = 0; i < n; i++)
        if (excluded[i] < 0 || excluded[i] >= comm->size || excluded[i] == comm->rank)
            return tri_fail_call(comm, TRI_SHRINK, TRIB_ERR_INVALID_ARGUMENT,
                                 "excluded[%d] is %d; expected a rank of 0 to %d but this one, %d",
                                 (int)i, (int)excluded[i], (int)comm->size - 1, (int)comm->rank);
    return TRIB_OK;
}

static trib_status check(const struct trib_comm *comm, const int32_t *excluded, int32_t n)
{
    TRI_TRY(check_excluded(comm, excluded, n));
    if (comm->batch.open)
        return tri_fail_call(comm, TRI_SHRINK, TRIB_ERR_INVALID_USAGE,
                             "inside a batch; call trib_batch_end first");
    const int32_t here = comm->backend->transport->here(comm->transport);
    if (here < comm->size && comm->remote == NULL)
        return tri_fail_call(comm, TRI_SHRINK, TRIB_ERR_UNSUPPORTED,
                             "%d of %d ranks are in other processes, and there is no side channel "
                             "to carry a new id there: create a communicator with an id of your "
                             "own",
                             (int)(comm->size - here), (int)comm->size);
    return TRIB_OK;
}

/* `excluded` is checked, but for ranks that are there twice. */
static trib_status find_survivors(struct tri_survivors *out, struct trib_comm *comm,
                                  const int32_t *excluded, int32_t n)
{
    int32_t *ranks = tri_comm_scratch(comm, 2 * (size_t)comm->size * sizeof *ranks);
    *out = (struct tri_survivors){.ranks = ranks};
    if (ranks == NULL)
        return tri_fail_call(comm, TRI_SHRINK, TRIB_ERR_OUT_OF_MEMORY, "no memory for %d ranks",
                             (int)comm->size);
    for (int32_t rank = 0; rank < comm->size; rank++)
        ranks[rank] = rank;
    for (int32_t i = 0; i < n; i++) {
        if (ranks[excluded[i]] < 0)
            return tri_fail_call(comm, TRI_SHRINK, TRIB_ERR_INVALID_ARGUMENT,
                                 "excluded[%d] is %d, which is there twice", (int)i,
                                 (int)excluded[i]);
        ranks[excluded[i]] = -1;
    }
    for (int32_t rank = 0; rank < comm->size; rank++) {
        if (rank == comm->rank)
            out->self = out->n;
        if (ranks[rank] >= 0)
            ranks[out->n++] = rank;
    }
    return TRIB_OK;
}

/* From here on no rank makes a call that others would wait for. */
static void end_old(const struct trib_comm *comm, const struct tri_survivors *survivors)
{
    int32_t lost[TRI_LOST_MAX], n = 0, at = 0;
    char text[TRI_DETAIL_SIZE];
    struct tri_text why = {.data = text, .room = sizeof text};
    tri_text_add(&why, "the communicator was aborted: trib_comm_shrink on rank %d excludes %s",
                 (int)comm->rank, survivors->n == comm->size ? "no rank" : "rank ");
    for (int32_t rank = 0; rank < comm->size && n < TRI_LOST_MAX; rank++) {
        if (at < survivors->n && survivors->ranks[at] == rank) {
            at++;
            continue;
        }
        tri_text_add(&why, n == 0 ? "%d" : ", %d", (int)rank);
        lost[n++] = rank;
    }
    (void)tri_abort_raise_lost(comm->state, TRIB_ERR_ABORTED, text, lost, n);
}

/* What this rank needs to get the new id. */
struct making {
    const struct trib_comm *comm;
    const struct tri_survivors *survivors;
    uint64_t deadline_ns;
};

/* One rank calls this for all remaining ranks of the process, which have met. */
static trib_status make_id(trib_id *out, void *context)
{
    const struct making *making = context;
    if (making->comm->remote == NULL)
        return making->comm->backend->transport->id_create(out);
    return tri_new_id(out, making->comm, making->survivors, making->deadline_ns);
}

/* A rank that goes on alone opens a group of one, which needs no id: NCCL would wait for ever for
 * the ranks of one that nobody uses. This only tells its communicators apart. */
static trib_status make_number(trib_id *out, void *context)
{
    const uint64_t now = tri_now_ns();
    (void)context;
    *out = (trib_id){{0}};
    memcpy(out->bytes, &now, sizeof now);
    return TRIB_OK;
}

/* The survivors of this process, which meet: to `here`; returns how many. */
static int32_t find_here(int32_t *here, const struct trib_comm *comm,
                         const struct tri_survivors *survivors)
{
    int32_t n = 0;
    for (int32_t i = 0; i < survivors->n; i++)
        if (comm->remote == NULL || tri_remote_process(comm->remote, survivors->ranks[i]) ==
                                        tri_remote_process(comm->remote, comm->rank))
            here[n++] = survivors->ranks[i];
    return n;
}

/* `here` has room for all ranks. */
static trib_status get_id(trib_id *out, struct trib_comm *comm,
                          const struct tri_survivors *survivors, int32_t *here,
                          uint64_t deadline_ns)
{
    struct making making = {.comm = comm, .survivors = survivors, .deadline_ns = deadline_ns};
    struct tri_attendee self = {.rank = comm->rank,
                                .ranks = here,
                                .n = find_here(here, comm, survivors),
                                .attempts = &comm->shrinks,
                                .timeout_ms = tri_left_ms(deadline_ns),
                                .deadline_ns = deadline_ns,
                                .make = survivors->n == 1 ? make_number : make_id,
                                .context = &making};
    return tri_meeting_attend(tri_abort_meeting(comm->state), &self, out);
}

static trib_status open_new(struct tri_transport **out, trib_id *out_id, struct trib_comm *comm,
                            const struct tri_survivors *survivors, uint64_t deadline_ns)
{
    int32_t *here = survivors->ranks + comm->size; /* the other half of the scratch memory */
    TRI_TRY(get_id(out_id, comm, survivors, here, deadline_ns));
    const uint32_t left_ms = tri_left_ms(deadline_ns);
    if (survivors->n == 1)
        return comm->backend->transport->open_group(out, &comm->device, 1, &comm->config, left_ms);
    return comm->backend->transport->open(out, out_id, survivors->self, survivors->n, comm->device,
                                          &comm->config, left_ms);
}

int32_t tri_comm_lost(const struct trib_comm *comm, int32_t *out, int32_t capacity)
{
    int32_t found[TRI_LOST_MAX], n = 0;
    if (comm->remote == NULL || tri_abort_live(comm->state))
        return tri_abort_lost(comm->state, out, capacity);
    const int32_t named = tri_abort_lost(comm->state, found, TRI_LOST_MAX);
    for (int32_t rank = 0; rank < comm->size; rank++) {
        bool lost = tri_remote_is_dead(comm->remote, rank);
        for (int32_t i = 0; i < named; i++)
            lost = lost || found[i] == rank;
        if (lost && n < capacity)
            out[n] = rank;
        n += lost;
    }
    return n;
}

trib_status tri_comm_shrink(struct trib_comm **out, struct trib_comm *comm, const int32_t *excluded,
                            int32_t n, uint32_t timeout_ms)
{
    const struct tri_settings settings = tri_settings_of(comm);
    struct tri_survivors survivors;
    struct trib_comm *made = NULL;
    struct tri_transport *transport = NULL;
    trib_id id;
    TRI_TRY(check(comm, excluded, n));
    TRI_TRY(find_survivors(&survivors, comm, excluded, n));
    TRI_TRY(tri_comm_prepare(&made, comm->backend, comm->device, survivors.n, &settings));
    end_old(comm, &survivors);
    const uint64_t deadline_ns = tri_deadline_ns(timeout_ms == 0 ? comm->timeout_ms : timeout_ms);
    const trib_status status = open_new(&transport, &id, comm, &survivors, deadline_ns);
    if (status != TRIB_OK) {
        tri_comm_discard(made);
        return tri_fail_call(comm, TRI_SHRINK, status, "%s", tri_detail());
    }
    tri_comm_attach(made, transport, tri_digest(comm->identity, &id, sizeof id));
    made->id = comm->id; /* it never travels; the new one may have come over the side channel */
    TRI_TRY(tri_comm_introduce(made, TRI_SHRINK, deadline_ns));
    *out = made;
    return TRIB_OK;
}
