/* One new id for the ranks that remain of an aborted communicator, in all of their processes.
 *
 * A follower joins. Once all have, the leader asks each whether it still waits, because a join may be
 * one that has been given up; each confirms, and gets the id. */
#include "csrc/core/new_id.h"

#include <stdio.h>
#include <stdlib.h>

#include "csrc/base/clock.h"
#include "csrc/base/text.h"
#include "csrc/core/match.h"
#include "csrc/core/new_id_message.h"
#include "csrc/core/remote.h"
#include "csrc/core/remote_ask.h"

enum { NAP_NS = 500000 };

static bool receive(struct tri_new_id_message *out, struct tri_remote *remote, int32_t rank)
{
    uint8_t bytes[TRI_NEW_ID_BYTES];
    const size_t length = tri_remote_take(remote, rank, bytes, sizeof bytes);
    return length > 0 && tri_new_id_unpack(out, bytes, length);
}

static void send(struct tri_remote *remote, int32_t rank, const struct tri_new_id_message *message)
{
    uint8_t bytes[TRI_NEW_ID_BYTES];
    const size_t length = tri_new_id_pack(bytes, message);
    (void)tri_remote_send(remote, rank, bytes, length);
}

/* ---------------------------------------------------------------------------------------- attempt
 */

struct attempt {
    const struct trib_comm *comm;
    struct tri_remote *remote;
    const struct tri_survivors *survivors;
    uint64_t digest, number, deadline_ns;
    int32_t leader; /* its process, by its lowest rank */
    int32_t self;   /* this process */
    int32_t n;      /* ranks that remain, */
    int32_t here;   /* and those of them in this process */
};

static int32_t process_of(const struct attempt *attempt, int32_t i)
{
    return tri_remote_process(attempt->remote, attempt->survivors->ranks[i]);
}

static void begin(struct attempt *out, const struct trib_comm *comm,
                  const struct tri_survivors *survivors, uint64_t deadline_ns)
{
    *out = (struct attempt){.comm = comm,
                            .remote = comm->remote,
                            .survivors = survivors,
                            .number = tri_now_ns(),
                            .n = survivors->n,
                            .deadline_ns = deadline_ns};
    out->digest =
        tri_digest(0, survivors->ranks, (size_t)survivors->n * sizeof survivors->ranks[0]);
    out->leader = process_of(out, 0);
    out->self = tri_remote_process(comm->remote, comm->rank);
    for (int32_t i = 0; i < survivors->n; i++)
        out->here += process_of(out, i) == out->self;
}

static struct tri_new_id_message message_of(const struct attempt *attempt,
                                            enum tri_new_id_kind kind)
{
    return (struct tri_new_id_message){
        .kind = kind, .n = attempt->n, .digest = attempt->digest, .attempt = attempt->number};
}

/* TRIB_ERR_CLOSED if a rank that should remain cannot. */
static trib_status check_survivors(const struct attempt *attempt)
{
    for (int32_t i = 0; i < attempt->n; i++) {
        struct tri_remote_rank rank;
        tri_remote_look(attempt->remote, attempt->survivors->ranks[i], &rank);
        if (rank.state == TRI_REMOTE_DEAD)
            return tri_fail(TRIB_ERR_CLOSED, "%s; call it again, and exclude that rank",
                            rank.death);
        if (rank.state == TRI_REMOTE_LEFT)
            return tri_fail(TRIB_ERR_CLOSED,
                            "%s has closed the communicator; call it again, and exclude that rank",
                            rank.who.text);
    }
    return TRIB_OK;
}

/* `rank` goes on with `n` ranks, which are others. */
static trib_status differ(const struct attempt *attempt, int32_t rank, int32_t n)
{
    struct tri_remote_rank other;
    tri_remote_look(attempt->remote, rank, &other);
    return tri_fail(
        TRIB_ERR_MISMATCH,
        "the ranks do not exclude the same: rank %d goes on with %d ranks, %s with %d%s; "
        "call it again, with the same `excluded` on all",
        (int)attempt->comm->rank, (int)attempt->n, other.who.text, (int)n,
        n == attempt->n ? " others" : "");
}

/* ----------------------------------------------------------------------------------------- leader
 */

/* What a survivor in another process has said: it speaks for `ranks` ranks of its process; 0: it
 * does not. */
struct join {
    int32_t ranks; /* that the sender goes on with: */
    int32_t n;
    uint64_t digest, attempt;
    bool asked, confirmed;
};

/* One message of a survivor. */
static void note(struct join *join, const struct tri_new_id_message *message)
{
    const bool same = message->attempt == join->attempt && join->ranks > 0;
    if (message->kind == TRI_NEW_ID_JOIN)
        *join = (struct join){.ranks = message->number,
                              .n = message->n,
                              .digest = message->digest,
                              .attempt = message->attempt};
    else if (message->kind == TRI_NEW_ID_WITHDRAW)
        *join = (struct join){.ranks = 0};
    else if (message->kind == TRI_NEW_ID_CONFIRM && same)
        join->confirmed = true;
}

/* Does it speak for ranks that exclude others? */
static bool disagrees(const struct join *join, const struct attempt *attempt)
{
    return join->ranks > 0 && join->digest != attempt->digest;
}

/* Read the mail of all. */
static trib_status read_joins(struct join *joins, const struct attempt *attempt)
{
    const int32_t *ranks = attempt->survivors->ranks;
    for (int32_t i = 0; i < attempt->n; i++) {
        struct tri_new_id_message message;
        if (process_of(attempt, i) != attempt->self && receive(&message, attempt->remote, ranks[i]))
            note(&joins[i], &message);
        if (joins[i].confirmed && disagrees(&joins[i], attempt))
            return differ(attempt, ranks[i], joins[i].n);
    }
    return TRIB_OK;
}

/* Have all joined, and, if `confirmed`, said again that they wait? */
static bool complete(const struct join *joins, const struct attempt *attempt, bool confirmed)
{
    int64_t ranks = attempt->here;
    for (int32_t i = 0; i < attempt->n; i++)
        if ((joins[i].confirmed || !confirmed) && !disagrees(&joins[i], attempt))
            ranks += joins[i].ranks;
    return ranks >= attempt->n;
}

/* Ask who still waits: all if all have joined, else those that disagree. One that joins anew is asked
 * anew. */
static void ask(struct join *joins, const struct attempt *attempt)
{
    const bool all = complete(joins, attempt, false);
    struct tri_new_id_message message = message_of(attempt, TRI_NEW_ID_ASK);
    for (int32_t i = 0; i < attempt->n; i++) {
        if (joins[i].ranks == 0 || joins[i].asked || !(all || disagrees(&joins[i], attempt)))
            continue;
        message.attempt = joins[i].attempt;
        send(attempt->remote, attempt->survivors->ranks[i], &message);
        joins[i].asked = true;
    }
}

static trib_status late(const struct join *joins, const struct attempt *attempt)
{
    char missing[200] = "";
    struct tri_text list = {.data = missing, .room = sizeof missing};
    const bool all = complete(joins, attempt, false); /* but one no longer waits */
    for (int32_t i = 0; i < attempt->n; i++) {
        bool joined = process_of(attempt, i) == attempt->self;
        for (int32_t j = 0; j < attempt->n; j++)
            joined = joined || ((all ? joins[j].confirmed : joins[j].ranks > 0) &&
                                process_of(attempt, j) == process_of(attempt, i));
        if (!joined)
            tri_text_add(&list, "%s%d", list.used == 0 ? "" : ", ",
                         (int)attempt->survivors->ranks[i]);
    }
    return tri_fail(TRIB_ERR_TIMEOUT,
                    "within the deadline these ranks of other processes have not called it: %s; "
                    "call it again, and exclude those that are lost",
                    missing);
}

static trib_status await_joins(struct join *joins, const struct attempt *attempt)
{
    for (;;) {
        TRI_TRY(check_survivors(attempt));
        TRI_TRY(read_joins(joins, attempt));
        if (complete(joins, attempt, true))
            return TRIB_OK;
        ask(joins, attempt);
        if (tri_now_ns() >= attempt->deadline_ns)
            return late(joins, attempt);
        tri_nap_ns(NAP_NS);
    }
}

/* To all that have joined. */
static void reply(const struct join *joins, const struct attempt *attempt,
                  struct tri_new_id_message *message)
{
    for (int32_t i = 0; i < attempt->n; i++) {
        message->attempt = joins[i].attempt;
        if (joins[i].ranks > 0)
            send(attempt->remote, attempt->survivors->ranks[i], message);
    }
}

static trib_status lead(trib_id *out, const struct attempt *attempt)
{
    struct join *joins = calloc((size_t)attempt->n, sizeof *joins);
    if (joins == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for %d ranks", (int)attempt->n);
    trib_status status = await_joins(joins, attempt);
    if (status == TRIB_OK)
        status = attempt->comm->backend->transport->id_create(out);
    struct tri_new_id_message message =
        message_of(attempt, status == TRIB_OK ? TRI_NEW_ID_ID : TRI_NEW_ID_REFUSAL);
    message.number = status;
    if (status == TRIB_OK)
        message.id = *out;
    else
        (void)snprintf(message.text, sizeof message.text, "%s", tri_detail());
    reply(joins, attempt, &message);
    free(joins);
    return status == TRIB_OK ? TRIB_OK : tri_fail(status, "%s", message.text);
}

/* --------------------------------------------------------------------------------------- followers
 */

/* To every rank of the leader's process, also one that this rank excludes: any may be the one that
 * leads. */
static void send_leader(const struct attempt *attempt, enum tri_new_id_kind kind)
{
    struct tri_new_id_message message = message_of(attempt, kind);
    message.number = attempt->here;
    for (int32_t rank = 0; rank < attempt->comm->size; rank++)
        if (tri_remote_process(attempt->remote, rank) == attempt->leader)
            send(attempt->remote, rank, &message);
}

/* To the rank that has asked, alone: another one, which leads the next attempt, would take it for
 * the answer to its own question. */
static void confirm(const struct attempt *attempt, int32_t rank)
{
    const struct tri_new_id_message message = message_of(attempt, TRI_NEW_ID_CONFIRM);
    send(attempt->remote, rank, &message);
}

/* The leader's answer to this attempt. A question is confirmed at the next look: one rank of the
 * leader's process may have answered before another one, which leads its next attempt, asks about
 * this one, and its answer comes another way. */
static bool find_answer(struct tri_new_id_message *out, const struct attempt *attempt,
                        int32_t *asker)
{
    const int32_t before = *asker;
    *asker = -1;
    for (int32_t rank = 0; rank < attempt->comm->size; rank++) {
        if (tri_remote_process(attempt->remote, rank) != attempt->leader ||
            !receive(out, attempt->remote, rank) || out->attempt != attempt->number)
            continue;
        if (out->kind == TRI_NEW_ID_ID || out->kind == TRI_NEW_ID_REFUSAL)
            return true;
        if (out->kind == TRI_NEW_ID_ASK && *asker >= 0)
            confirm(attempt, *asker);
        if (out->kind == TRI_NEW_ID_ASK)
            *asker = rank;
    }
    if (before >= 0)
        confirm(attempt, before);
    return false;
}

static trib_status await_answer(struct tri_new_id_message *out, const struct attempt *attempt)
{
    int32_t asker = -1;
    for (;;) {
        const trib_status status = check_survivors(attempt); /* what came before a bye is there */
        if (find_answer(out, attempt, &asker))
            return TRIB_OK;
        if (status != TRIB_OK)
            return status;
        if (tri_now_ns() >= attempt->deadline_ns)
            return tri_fail(TRIB_ERR_TIMEOUT,
                            "rank %d has sent no new id within the deadline: not all ranks that "
                            "go on have called it; call it again, and exclude those that are lost",
                            (int)attempt->survivors->ranks[0]);
        tri_nap_ns(NAP_NS);
    }
}

static trib_status follow(trib_id *out, const struct attempt *attempt)
{
    struct tri_new_id_message answer;
    send_leader(attempt, TRI_NEW_ID_JOIN);
    const trib_status status = await_answer(&answer, attempt);
    if (status != TRIB_OK) {
        const struct tri_detail_copy why = tri_detail_copy();
        send_leader(attempt, TRI_NEW_ID_WITHDRAW);
        return tri_fail(status, "%s", why.text);
    }
    if (answer.kind == TRI_NEW_ID_REFUSAL) {
        send_leader(attempt, TRI_NEW_ID_WITHDRAW); /* another rank of its process may lead later */
        return tri_fail(answer.number, "told by rank %d: %s", (int)attempt->survivors->ranks[0],
                        answer.text);
    }
    *out = answer.id;
    return TRIB_OK;
}

trib_status tri_new_id(trib_id *out, const struct trib_comm *comm,
                       const struct tri_survivors *survivors, uint64_t deadline_ns)
{
    struct attempt attempt;
    begin(&attempt, comm, survivors, deadline_ns);
    if (attempt.here == survivors->n)
        return comm->backend->transport->id_create(out);
    return attempt.self == attempt.leader ? lead(out, &attempt) : follow(out, &attempt);
}
