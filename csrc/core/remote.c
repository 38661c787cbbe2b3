/* The ranks of a communicator in other processes, as one of its ranks knows them. */
#include "csrc/core/remote.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/clock.h"
#include "csrc/base/descriptor.h"
#include "csrc/base/lock.h"
#include "csrc/core/communicator.h"

/* How long an answer may take: well under a millisecond, but all ranks ask at once. */
enum { PATIENCE_NS = 50000000, PATIENCE_OF_A_RANK_NS = 500000, MAIL_MAX = 1024 };

/* One rank. */
struct rank {
    struct tri_peer_address address;
    int32_t process; /* the lowest rank of its process */
    enum tri_remote_state state;
    bool stopped; /* it has said that its communicator has ended, or its process has */
    char death[TRI_DETAIL_SIZE / 2];
    uint64_t answered; /* the question that it has answered last */
    uint64_t said_ns;
    struct tri_remote_message said;
    uint8_t *mail; /* NULL: none */
    size_t mail_bytes;
    int fd; /* -1: none */
    uint64_t fd_tag;
};

struct tri_remote {
    struct trib_comm *comm;
    struct tri_peers *peers;
    struct tri_abort_observer observer;
    void (*wake)(void);
    /* Guards the rest. Taken before the lock of csrc/peers, which is not held during a callback, and
     * after that of an abort state. */
    struct tri_lock lock;
    uint64_t question, collective, asked_ns; /* the last question: number, subject, time */
    bool wants_fds;
    bool raised, holds; /* the state has stopped, and this rank has told; it holds the state */
    struct rank of[];
};

static void notify(const struct tri_remote *remote)
{
    if (remote->comm->recorder != NULL)
        remote->wake();
}

/* ------------------------------------------------------------------------------------------ hold */

/* May a collective of it go on? A process may live though its connection is lost. Locked. */
static bool is_to_stop(const struct tri_remote *remote, int32_t rank)
{
    const struct rank *of = &remote->of[rank];
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
static void note_stopped(struct tri_remote *remote, int32_t rank)
{
    tri_lock(&remote->lock);
    for (int32_t other = 0; other < remote->comm->size; other++)
        if (remote->of[other].process == remote->of[rank].process)
            remote->of[other].stopped = true;
    review_hold(remote);
    tri_unlock(&remote->lock);
}

/* -------------------------------------------------------------------------------------- messages */

/* How far this rank has got. `collective`: the call that was asked about, or 0. Any thread. */
static void describe_self(struct tri_remote_message *out, const struct trib_comm *comm,
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

static void answer(struct tri_remote *remote, int32_t rank,
                   const struct tri_remote_message *question)
{
    uint8_t bytes[TRI_REMOTE_BYTES];
    struct tri_remote_message message = {.kind = TRI_REMOTE_ANSWER,
                                         .question = question->question,
                                         .collective = question->collective};
    describe_self(&message, remote->comm, question->collective);
    tri_remote_pack(bytes, &message);
    (void)tri_peers_send(remote->peers, rank, TRI_PEER_PROGRESS, bytes, sizeof bytes);
}

/* Locked. */
static void send_to_all(struct tri_remote *remote, const struct tri_remote_message *message)
{
    uint8_t bytes[TRI_REMOTE_BYTES];
    tri_remote_pack(bytes, message);
    for (int32_t rank = 0; rank < remote->comm->size; rank++)
        if (remote->of[rank].state == TRI_REMOTE_PRESENT)
            (void)tri_peers_send(remote->peers, rank, TRI_PEER_PROGRESS, bytes, sizeof bytes);
}

static void store_answer(struct tri_remote *remote, int32_t rank,
                         const struct tri_remote_message *message)
{
    struct rank *of = &remote->of[rank];
    tri_lock(&remote->lock);
    of->said = *message;
    of->said_ns = tri_now_ns();
    of->answered = message->question;
    tri_unlock(&remote->lock);
}

static void on_progress(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                        size_t length)
{
    struct tri_remote_message message;
    if (!tri_remote_unpack(&message, bytes, length))
        return;
    if (message.kind == TRI_REMOTE_QUESTION)
        answer(remote, rank, &message);
    else if (message.kind == TRI_REMOTE_STOPPED)
        note_stopped(remote, rank);
    else
        store_answer(remote, rank, &message);
}

/* Another process says that the communicator has ended. */
static void on_abort(struct tri_remote *remote, int32_t rank, const uint8_t *bytes, size_t length)
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
    note_stopped(remote, rank);
    notify(remote); /* to report it */
}

static void on_mail(struct tri_remote *remote, int32_t rank, const uint8_t *bytes, size_t length)
{
    struct rank *of = &remote->of[rank];
    uint8_t *mail = length == 0 || length > MAIL_MAX ? NULL : malloc(length);
    if (mail == NULL)
        return;
    memcpy(mail, bytes, length);
    tri_lock(&remote->lock);
    free(of->mail);
    of->mail = mail;
    of->mail_bytes = length;
    tri_unlock(&remote->lock);
}

static void on_message(void *context, int32_t rank, enum tri_peer_type type, const uint8_t *bytes,
                       size_t length)
{
    struct tri_remote *remote = context;
    if (type == TRI_PEER_PROGRESS)
        on_progress(remote, rank, bytes, length);
    else if (type == TRI_PEER_ABORT)
        on_abort(remote, rank, bytes, length);
    else if (type == TRI_PEER_SHRINK)
        on_mail(remote, rank, bytes, length);
}

/* A later one replaces it, as with mail. */
static bool on_fd(void *context, int32_t rank, uint64_t tag, int fd)
{
    struct tri_remote *remote = context;
    struct rank *of = &remote->of[rank];
    int former = -1;
    tri_lock(&remote->lock);
    const bool taken = remote->wants_fds && (of->fd < 0 || tag >= of->fd_tag);
    if (taken) {
        former = of->fd;
        of->fd = fd;
        of->fd_tag = tag;
    }
    tri_unlock(&remote->lock);
    tri_descriptor_close(&former);
    return taken;
}

/* ------------------------------------------------------------------------------------------ ends */

/* With the process of a rank all of its ranks are dead. Each is told of by itself, but those that go
 * on should exclude them all from the beginning. */
static int32_t note_dead(struct tri_remote *remote, int32_t rank, const char *text, bool ended,
                         int32_t lost[TRI_LOST_MAX])
{
    int32_t n = 0;
    tri_lock(&remote->lock);
    for (int32_t other = 0; other < remote->comm->size; other++) {
        struct rank *of = &remote->of[other];
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

static void on_dead(void *context, int32_t rank, const char *text, bool ended)
{
    struct tri_remote *remote = context;
    int32_t lost[TRI_LOST_MAX];
    const int32_t n = note_dead(remote, rank, text, ended, lost);
    (void)tri_abort_raise_lost(remote->comm->state, TRIB_ERR_CLOSED, text, lost, n);
    notify(remote); /* to report it */
}

static void on_leaving(void *context)
{
    struct tri_remote *remote = context;
    struct tri_remote_message farewell = {.kind = TRI_REMOTE_FAREWELL};
    /* The caller's, which a failure to send must not replace. */
    const struct tri_detail_copy detail = tri_detail_copy();
    describe_self(&farewell, remote->comm, 0);
    tri_lock(&remote->lock);
    send_to_all(remote, &farewell);
    tri_unlock(&remote->lock);
    (void)tri_fail(TRIB_OK, "%s", detail.text);
}

static void on_left(void *context, int32_t rank)
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
    const size_t length = tri_peer_abort_pack(bytes, &abort);
    for (int32_t rank = 0; rank < comm->size; rank++)
        if (remote->of[rank].state == TRI_REMOTE_PRESENT)
            (void)tri_peers_send(remote->peers, rank, TRI_PEER_ABORT, bytes, length);
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
        send_to_all(remote, &stopped);
    else
        send_abort(remote);
    remote->raised = true;
    review_hold(remote);
    tri_unlock(&remote->lock);
    (void)tri_fail(TRIB_OK, "%s", detail.text);
}

/* ------------------------------------------------------------------------------------------ life */

trib_status tri_remote_create(struct tri_remote **out, struct trib_comm *comm,
                              struct tri_peer_address *own, void (*wake)(void))
{
    struct tri_remote *remote =
        calloc(1, sizeof *remote + (size_t)comm->size * sizeof remote->of[0]);
    if (remote == NULL)
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "no memory for %d ranks", (int)comm->size);
    uint8_t key[sizeof comm->id + sizeof comm->identity];
    memcpy(key, &comm->id, sizeof comm->id);
    memcpy(key + sizeof comm->id, &comm->identity, sizeof comm->identity);
    const struct tri_peers_setup setup = {.key_material = key,
                                          .key_bytes = sizeof key,
                                          .rank = comm->rank,
                                          .size = comm->size,
                                          .callbacks = {.dead = on_dead,
                                                        .left = on_left,
                                                        .message = on_message,
                                                        .leaving = on_leaving,
                                                        .fd = on_fd},
                                          .context = remote};
    for (int32_t rank = 0; rank < comm->size; rank++)
        remote->of[rank].fd = -1;
    remote->comm = comm;
    remote->wake = wake;
    remote->observer = (struct tri_abort_observer){.raised = on_raised, .context = remote};
    tri_lock_init(&remote->lock);
    const trib_status status = tri_peers_listen(&remote->peers, &setup, own);
    if (status != TRIB_OK) {
        free(remote);
        return status;
    }
    *out = remote;
    return TRIB_OK;
}

static int32_t lowest_of_process(const struct tri_peer_address *all, int32_t rank)
{
    int32_t lowest = 0;
    while (lowest < rank && !tri_peer_same_process(&all[lowest], &all[rank]))
        lowest++;
    return lowest;
}

trib_status tri_remote_connect(struct tri_remote *remote, const struct tri_peer_address *all,
                               uint64_t deadline_ns)
{
    const struct trib_comm *comm = remote->comm;
    for (int32_t rank = 0; rank < comm->size; rank++) {
        struct rank *of = &remote->of[rank];
        of->address = all[rank];
        of->process = lowest_of_process(all, rank);
        of->state = of->process == lowest_of_process(all, comm->rank) ? TRI_REMOTE_HERE
                                                                      : TRI_REMOTE_PRESENT;
    }
    TRI_TRY(tri_peers_connect(remote->peers, all, deadline_ns));
    tri_abort_hold(comm->state);
    tri_lock(&remote->lock);
    remote->holds = true;
    tri_unlock(&remote->lock);
    tri_abort_observe(comm->state, &remote->observer);
    return TRIB_OK;
}

/* Of a communicator that has ended the hold stays for its time: those that are waited for are not heard any more. */
void tri_remote_close(struct tri_remote *remote)
{
    if (remote == NULL)
        return;
    tri_abort_unobserve(remote->comm->state, &remote->observer);
    tri_lock(&remote->lock);
    if (!remote->raised)
        let_go(remote);
    tri_unlock(&remote->lock);
    tri_peers_close(remote->peers);
    for (int32_t rank = 0; rank < remote->comm->size; rank++) {
        free(remote->of[rank].mail);
        tri_descriptor_close(&remote->of[rank].fd);
    }
    free(remote);
}

/* ------------------------------------------------------------------------------------- questions */

void tri_remote_ask(struct tri_remote *remote, uint64_t collective)
{
    tri_lock(&remote->lock);
    const struct tri_remote_message question = {
        .kind = TRI_REMOTE_QUESTION, .question = ++remote->question, .collective = collective};
    remote->collective = collective;
    remote->asked_ns = tri_now_ns();
    send_to_all(remote, &question);
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
    const struct rank *of = &remote->of[rank];
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
    const struct rank *of = &remote->of[rank];
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
    const struct rank *of = &remote->of[rank];
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

/* ------------------------------------------------------------------------------------------ mail */

trib_status tri_remote_send(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                            size_t length)
{
    return tri_peers_send(remote->peers, rank, TRI_PEER_SHRINK, bytes, length);
}

size_t tri_remote_take(struct tri_remote *remote, int32_t rank, uint8_t *out, size_t capacity)
{
    struct rank *of = &remote->of[rank];
    tri_lock(&remote->lock);
    const size_t length = of->mail == NULL || of->mail_bytes > capacity ? 0 : of->mail_bytes;
    if (length > 0)
        memcpy(out, of->mail, length);
    free(of->mail);
    of->mail = NULL;
    tri_unlock(&remote->lock);
    return length;
}

/* ----------------------------------------------------------------------------------- descriptors */

void tri_remote_want_fds(struct tri_remote *remote, bool wanted)
{
    tri_lock(&remote->lock);
    remote->wants_fds = wanted;
    tri_unlock(&remote->lock);
    for (int32_t rank = 0; !wanted && rank < remote->comm->size; rank++) {
        int fd = tri_remote_take_fd(remote, rank, UINT64_MAX);
        tri_descriptor_close(&fd);
    }
}

trib_status tri_remote_send_fd(struct tri_remote *remote, int32_t rank, int fd, uint64_t tag)
{
    return tri_peers_send_fd(remote->peers, rank, fd, tag);
}

int tri_remote_take_fd(struct tri_remote *remote, int32_t rank, uint64_t tag)
{
    struct rank *of = &remote->of[rank];
    int found = -1, older = -1;
    tri_lock(&remote->lock);
    if (of->fd >= 0 && of->fd_tag <= tag) {
        *(of->fd_tag == tag ? &found : &older) = of->fd;
        of->fd = -1;
    }
    tri_unlock(&remote->lock);
    tri_descriptor_close(&older);
    return found;
}

/* ---------------------------------------------------------------------------------------- places */

int32_t tri_remote_process(const struct tri_remote *remote, int32_t rank)
{
    return remote->of[rank].process;
}

/* All ranks have the same addresses. To share Unix sockets is to be on one machine and in one of its
 * network namespaces, which is an equivalence: so if each rank shares them with rank 0, any two do. */
bool tri_remote_is_one_host(const struct tri_remote *remote)
{
    bool one = true;
    for (int32_t rank = 0; rank < remote->comm->size; rank++)
        one = one && remote->of[rank].process == rank &&
              tri_peer_same_unix(&remote->of[rank].address, &remote->of[0].address);
    return one;
}
