#include "csrc/core/remote_ask.h"

#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/core/communicator.h"
#include "csrc/core/remote_state.h"

/* How long an answer may take: well under a millisecond, but all ranks ask at once. */
enum { PATIENCE_NS = 50000000, PATIENCE_OF_A_RANK_NS = 500000 };

/* -------------------------------------------------------------------------------------- answers */

void tri_remote_describe_self(struct tri_remote_message *out, const struct trib_comm *comm,
                              uint64_t collective)
{
    const struct tri_recorder *recorder = comm->recorder;
    struct tri_recorded call;
    struct tri_progress progress = {0};
    const uint64_t now = tri_now_ns();
    out->recorded = recorder != NULL;
    if (recorder == NULL)
        return;
    out->entered = atomic_load(&recorder->entered);
    out->issued = atomic_load(&recorder->issued);
    if (tri_abort_live(comm->state))
        comm->backend->transport->progress(comm->transport, &progress);
    out->ended = progress.ended;
    if (tri_recorder_newest(recorder, &call))
        tri_call_copy_set(&out->newest, &call, now);
    if (collective != 0 && tri_recorder_find(recorder, collective, &call))
        tri_call_copy_set(&out->asked, &call, now);
}

void tri_remote_answer(struct tri_remote *remote, int32_t rank,
                       const struct tri_remote_message *question)
{
    uint8_t bytes[TRI_REMOTE_BYTES];
    struct tri_remote_message message = {.kind = TRI_REMOTE_ANSWER,
                                         .question = question->question,
                                         .collective = question->collective};
    tri_remote_describe_self(&message, remote->comm, question->collective);
    tri_remote_pack(bytes, &message);
    (void)tri_peers_send(remote->peers, rank, TRI_PEER_PROGRESS, bytes, sizeof bytes);
}

void tri_remote_send_to_all(struct tri_remote *remote, enum tri_peer_type type,
                            const uint8_t *bytes, size_t length)
{
    for (int32_t rank = 0; rank < remote->comm->size; rank++)
        if (remote->of[rank].state == TRI_REMOTE_PRESENT)
            (void)tri_peers_send(remote->peers, rank, type, bytes, length);
}

void tri_remote_tell_all(struct tri_remote *remote, const struct tri_remote_message *message)
{
    uint8_t bytes[TRI_REMOTE_BYTES];
    tri_remote_pack(bytes, message);
    tri_remote_send_to_all(remote, TRI_PEER_PROGRESS, bytes, sizeof bytes);
}

void tri_remote_store_answer(struct tri_remote *remote, int32_t rank,
                             const struct tri_remote_message *message)
{
    struct tri_remote_of *of = &remote->of[rank];
    tri_lock(&remote->lock);
    of->said = *message;
    of->said_ns = tri_now_ns();
    of->answered = message->question;
    tri_unlock(&remote->lock);
}

/* ------------------------------------------------------------------------------------- questions */

void tri_remote_ask(struct tri_remote *remote, uint64_t collective)
{
    tri_lock(&remote->lock);
    const struct tri_remote_message question = {
        .kind = TRI_REMOTE_QUESTION, .question = ++remote->question, .collective = collective};
    remote->collective = collective;
    remote->asked_ns = tri_now_ns();
    tri_remote_tell_all(remote, &question);
    tri_unlock(&remote->lock);
}

uint64_t tri_remote_asked_ns(struct tri_remote *remote, uint64_t collective)
{
    tri_lock(&remote->lock);
    const uint64_t asked = remote->collective == collective ? remote->asked_ns : 0;
    tri_unlock(&remote->lock);
    return asked;
}

/* Locked. */
static bool has_answered(const struct tri_remote *remote, int32_t rank)
{
    const struct tri_remote_of *of = &remote->of[rank];
    return of->answered == remote->question && remote->question != 0;
}

bool tri_remote_answered(struct tri_remote *remote)
{
    bool all = true;
    tri_lock(&remote->lock);
    const uint64_t patience = PATIENCE_NS + (uint64_t)remote->comm->size * PATIENCE_OF_A_RANK_NS;
    const bool patient = tri_now_ns() < remote->asked_ns + patience;
    for (int32_t rank = 0; patient && rank < remote->comm->size; rank++)
        all = all && (remote->of[rank].state != TRI_REMOTE_PRESENT || has_answered(remote, rank));
    tri_unlock(&remote->lock);
    return all;
}

void tri_remote_look(struct tri_remote *remote, int32_t rank, struct tri_remote_rank *out)
{
    const struct tri_remote_of *of = &remote->of[rank];
    const enum tri_peer_way way = tri_peers_way(remote->peers, rank);
    tri_lock(&remote->lock);
    *out = (struct tri_remote_rank){.state = of->state,
                                    .who = tri_peer_text(&of->address),
                                    .process = of->address.pid,
                                    .way = way,
                                    .answered = has_answered(remote, rank) ||
                                                of->said.kind == TRI_REMOTE_FAREWELL,
                                    .said_ns = of->said_ns,
                                    .said = of->said};
    memcpy(out->death, of->death, sizeof out->death);
    memcpy(out->host, of->address.host, sizeof out->host);
    tri_unlock(&remote->lock);
}

bool tri_remote_is_dead(struct tri_remote *remote, int32_t rank)
{
    tri_lock(&remote->lock);
    const bool dead = remote->of[rank].state == TRI_REMOTE_DEAD;
    tri_unlock(&remote->lock);
    return dead;
}

/* Locked. */
static bool lacks(const struct tri_remote *remote, int32_t rank, uint64_t collective)
{
    const struct tri_remote_of *of = &remote->of[rank];
    const struct tri_call_copy *newest = &of->said.newest;
    const bool current = of->said.kind == TRI_REMOTE_FAREWELL ||
                         (remote->collective == collective && has_answered(remote, rank));
    if (of->state == TRI_REMOTE_DEAD)
        return true;
    return of->state != TRI_REMOTE_HERE && current && of->said.recorded &&
           (!newest->known || newest->record.collective < collective);
}

bool tri_remote_lacks(struct tri_remote *remote, int32_t rank, uint64_t collective)
{
    tri_lock(&remote->lock);
    const bool found = lacks(remote, rank, collective);
    tri_unlock(&remote->lock);
    return found;
}

bool tri_remote_is_silent(struct tri_remote *remote, int32_t rank, uint64_t collective)
{
    tri_lock(&remote->lock);
    const bool silent = remote->of[rank].state == TRI_REMOTE_PRESENT &&
                        remote->collective == collective && !has_answered(remote, rank);
    tri_unlock(&remote->lock);
    return silent;
}

int32_t tri_remote_left_before(struct tri_remote *remote, uint64_t collective, int32_t *out,
                               int32_t capacity)
{
    int32_t n = 0;
    tri_lock(&remote->lock);
    for (int32_t rank = 0; rank < remote->comm->size; rank++) {
        if (remote->of[rank].state != TRI_REMOTE_LEFT || !lacks(remote, rank, collective))
            continue;
        if (n < capacity)
            out[n] = rank;
        n++;
    }
    tri_unlock(&remote->lock);
    return n;
}
