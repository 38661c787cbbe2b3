/* Opens the channels of a rank: connects to higher ranks, accepts lower ones. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/peers/connect.h"

#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/peers/socket.h"

enum {
    HANDSHAKE_MS = 2000, /* for one that has been accepted */
    ATTEMPT_MS = 2000,   /* for one attempt to connect, until the other end is known to be there */
    PAUSE_MS = 20,       /* between two attempts */
    SHORT_MS = 100,      /* until the next accept, where descriptors are short */
    SLOTS = 16,          /* for strangers, beside those for the ranks */
    REFUSALS_LOGGED = 8  /* by one rank: strangers do not fill the log */
};

/* ------------------------------------------------------------------------------------ connecting */

static void attempt(struct tri_peer *peer);

static int addresses(const struct tri_peer *peer)
{
    return peer->way == TRI_PEER_UNIX ? 1 : peer->address.tcp_count;
}

static void give_up(struct tri_peer *peer)
{
    const struct tri_peer_text who = tri_peer_text(&peer->address);
    if (peer->stranger)
        tri_peers_fail(peer->peers, TRIB_ERR_MISMATCH,
                       "%s refused rank %d: they have different ids; give all ranks "
                       "of a communicator the same one",
                       who.text, peer->peers->family.rank);
    else
        tri_peers_fail(peer->peers, TRIB_ERR_CLOSED,
                       "%s does not listen any more: it ended, or its own call failed", who.text);
}

/* Nothing listens at an address that refuses, and a rank with another id stays one; what merely
 * failed may go better next time. */
static void attempt_failed(struct tri_peer *peer, enum tri_channel_end why, int error)
{
    const int n = addresses(peer), last = (peer->attempts - 1) % n;
    tri_channel_destroy(peer->channel);
    peer->channel = NULL;
    peer->last_error = error;
    peer->stranger = peer->stranger || why == TRI_CHANNEL_REFUSED;
    if (why == TRI_CHANNEL_REFUSED || error == ECONNREFUSED)
        peer->refused |= 1u << last;
    if (peer->refused == (1u << n) - 1)
        give_up(peer);
    else if (peer->peers->connecting)
        tri_service_deadline(&peer->retry, tri_deadline_ns(PAUSE_MS));
}

static void retry(struct tri_service_item *item, uint32_t events)
{
    (void)events;
    attempt(item->context);
}

static void attempt(struct tri_peer *peer)
{
    struct tri_peers *peers = peer->peers;
    const bool local = peer->way == TRI_PEER_UNIX;
    const int which = peer->attempts++ % addresses(peer);
    const int fd = local ? tri_socket_connect_unix(&peer->address)
                         : tri_socket_connect_tcp(&peer->address, which);
    if (fd == -EMFILE || fd == -ENFILE) {
        tri_peers_fail(peers, TRIB_ERR_SYSTEM,
                       "rank %d: no socket to rank %d: %s; raise the limit on open "
                       "files (ulimit -n)",
                       peers->family.rank, peer->address.rank, tri_error_text(-fd).text);
    } else if (fd < 0) {
        attempt_failed(peer, TRI_CHANNEL_BROKEN, -fd);
    } else {
        const trib_status status =
            tri_channel_create(&peer->channel, &peers->family, fd, local, peer->address.rank,
                               tri_deadline_ns(ATTEMPT_MS));
        if (status != TRIB_OK)
            tri_peers_fail(peers, status, "%s", tri_detail());
    }
}

/* ------------------------------------------------------------------------------------- accepting */

static void drop_oldest(struct tri_peers *peers)
{
    struct tri_channel *oldest = peers->waiting;
    peers->waiting = oldest->next;
    tri_channel_destroy(oldest);
}

/* Remove a channel from those that wait; false if it is not among them. */
static bool unlink_waiting(struct tri_peers *peers, const struct tri_channel *channel)
{
    struct tri_channel **link = &peers->waiting;
    while (*link != NULL && *link != channel)
        link = &(*link)->next;
    if (*link == NULL)
        return false;
    *link = channel->next;
    return true;
}

static void add_waiting(struct tri_peers *peers, int fd, bool local)
{
    struct tri_channel *channel, **link = &peers->waiting;
    int32_t n = 0;
    if (tri_channel_create(&channel, &peers->family, fd, local, -1,
                           tri_deadline_ns(HANDSHAKE_MS)) != TRIB_OK) {
        tri_log(TRIB_LOG_WARN, "%s", tri_detail());
        return;
    }
    for (; *link != NULL; link = &(*link)->next)
        n++;
    *link = channel;
    if (n >= peers->family.size + SLOTS)
        drop_oldest(peers);
}

/* Without descriptors the listener would be ready again at once, for ever. */
static void accept_later(struct tri_peers *peers, struct tri_service_item *listener, int error)
{
    tri_log(TRIB_LOG_WARN, "rank %d cannot accept a connection: %s", peers->family.rank,
            tri_error_text(error).text);
    (void)tri_service_events(listener, 0);
    tri_service_deadline(listener, tri_deadline_ns(SHORT_MS));
}

static void accept_one(struct tri_service_item *listener, uint32_t events)
{
    struct tri_peers *peers = listener->context;
    const bool local = listener == &peers->listeners[0];
    if (events == 0) {
        (void)tri_service_events(listener, EPOLLIN);
        return;
    }
    const int fd = tri_socket_accept(listener->fd);
    if (fd == -EAGAIN || fd == -ECONNABORTED)
        return;
    if (fd < 0) {
        accept_later(peers, listener, -fd);
    } else if (local && !tri_socket_same_user(fd)) {
        if (peers->refusals++ < REFUSALS_LOGGED)
            tri_log(TRIB_LOG_WARN, "rank %d refused a connection of another user",
                    peers->family.rank);
        (void)close(fd);
    } else {
        add_waiting(peers, fd, local);
    }
}

/* -------------------------------------------------------------------- what channels say of themselves */

/* A lower rank of another process that has no channel yet, and comes the way that was agreed. */
static bool admits(struct tri_channel *channel)
{
    struct tri_peers *peers = channel->family->context;
    const int32_t rank = channel->wire.peer;
    if (rank >= peers->family.rank)
        return false;
    const struct tri_peer *peer = &peers->of[rank];
    return peers->connecting && peer->state == TRI_PEER_ABSENT &&
           peer->way == (channel->wire.local ? TRI_PEER_UNIX : TRI_PEER_TCP);
}

static void opened(struct tri_channel *channel)
{
    struct tri_peers *peers = channel->family->context;
    struct tri_peer *peer = &peers->of[channel->wire.peer];
    (void)unlink_waiting(peers, channel);
    peer->channel = channel;
    peer->state = TRI_PEER_PRESENT;
    peers->missing--;
    tri_service_wake();
}

static void message(struct tri_channel *channel, const struct tri_peer_message *message, int fd)
{
    struct tri_peers *peers = channel->family->context;
    tri_peer_deliver(&peers->of[channel->wire.peer], message, fd);
}

/* It never opened. Somebody else, or a rank that tries again. */
static void stranger_ended(struct tri_peers *peers, struct tri_channel *channel,
                           enum tri_channel_end why)
{
    const int32_t rank = channel->wire.peer;
    if (why == TRI_CHANNEL_REFUSED && peers->refusals++ < REFUSALS_LOGGED)
        tri_log(TRIB_LOG_WARN,
                "rank %d refused a connection that claims to be rank %d: it does not know the id, "
                "or is not expected",
                peers->family.rank, rank);
    if (why == TRI_CHANNEL_REFUSED && rank >= 0 && rank < peers->family.rank)
        peers->of[rank].stranger = true;
    tri_channel_destroy(channel);
}

static void ended(struct tri_channel *channel, enum tri_channel_end why, int error)
{
    struct tri_peers *peers = channel->family->context;
    if (unlink_waiting(peers, channel)) {
        stranger_ended(peers, channel, why);
        return;
    }
    struct tri_peer *peer = &peers->of[channel->wire.peer];
    if (peers->closing) {
        tri_channel_destroy(channel);
        peer->channel = NULL;
        peer->state = TRI_PEER_ENDED;
        tri_service_wake();
    } else if (why == TRI_CHANNEL_LEFT) {
        tri_peer_left(peer);
    } else if (peer->state == TRI_PEER_PRESENT) {
        tri_peer_lost(peer, error);
    } else {
        attempt_failed(peer, why, error);
    }
}

const struct tri_channel_owner tri_peers_channel_owner = {
    .admits = admits, .opened = opened, .message = message, .ended = ended};

/* --------------------------------------------------------------------------------- start and stop */

static void set_listener(struct tri_peers *peers, int which, int fd)
{
    struct tri_service_item *item = &peers->listeners[which];
    *item =
        (struct tri_service_item){.fd = fd < 0 ? -1 : fd, .context = peers, .ready = accept_one};
    if (fd >= 0)
        tri_service_add(item);
}

trib_status tri_connect_listen(struct tri_peers *peers)
{
    const bool unix_too = (peers->flags & TRI_PEERS_NO_UNIX) == 0;
    const int local = unix_too ? tri_socket_listen_unix(&peers->own) : -EAFNOSUPPORT;
    const int tcp = tri_socket_listen_tcp(&peers->own, (peers->flags & TRI_PEERS_LOOPBACK) != 0);
    set_listener(peers, 0, local);
    set_listener(peers, 1, tcp);
    if (local >= 0 || tcp >= 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_SYSTEM,
                    "rank %d cannot listen for the other ranks: %s; check the limit "
                    "on open files (ulimit -n)",
                    peers->family.rank, tri_error_text(-tcp).text);
}

static void close_listener(struct tri_service_item *listener)
{
    tri_service_remove(listener);
    if (listener->fd >= 0)
        (void)close(listener->fd);
    listener->fd = -1;
}

/* A listener that no rank needs is closed. */
static void accept_from_now(struct tri_peers *peers, enum tri_peer_way way)
{
    struct tri_service_item *listener = &peers->listeners[way == TRI_PEER_TCP];
    bool needed = false;
    for (int32_t rank = 0; rank < peers->family.rank; rank++)
        needed = needed || peers->of[rank].way == way;
    if (!needed || listener->fd < 0) {
        close_listener(listener);
        return;
    }
    const int error = tri_service_events(listener, EPOLLIN);
    if (error != 0)
        tri_peers_fail(peers, TRIB_ERR_SYSTEM, "rank %d cannot accept: %s", peers->family.rank,
                       tri_error_text(error).text);
}

void tri_connect_start(struct tri_peers *peers)
{
    accept_from_now(peers, TRI_PEER_UNIX);
    accept_from_now(peers, TRI_PEER_TCP);
    for (int32_t rank = peers->family.rank + 1; rank < peers->family.size; rank++) {
        struct tri_peer *peer = &peers->of[rank];
        if (peer->way == TRI_PEER_HERE || peers->failure != TRIB_OK)
            continue;
        peer->retry = (struct tri_service_item){.fd = -1, .context = peer, .ready = retry};
        tri_service_add(&peer->retry);
        attempt(peer);
    }
}

void tri_connect_stop(struct tri_peers *peers)
{
    peers->connecting = false;
    close_listener(&peers->listeners[0]);
    close_listener(&peers->listeners[1]);
    while (peers->waiting != NULL)
        drop_oldest(peers);
    for (int32_t rank = 0; rank < peers->family.size; rank++) {
        struct tri_peer *peer = &peers->of[rank];
        tri_service_remove(&peer->retry);
        if (peer->channel != NULL && !tri_channel_matters(peer->channel)) {
            tri_channel_destroy(peer->channel);
            peer->channel = NULL;
        }
    }
}

void tri_connect_late(struct tri_peers *peers)
{
    const struct tri_peer *late = NULL;
    for (int32_t rank = 0; rank < peers->family.size && late == NULL; rank++)
        if (peers->of[rank].way != TRI_PEER_HERE && peers->of[rank].state == TRI_PEER_ABSENT)
            late = &peers->of[rank];
    if (late == NULL)
        return;
    tri_peers_fail(
        peers, TRIB_ERR_TIMEOUT,
        "%s has no channel to rank %d yet%s%s%s; %d ranks are missing in "
        "all. Does it run, and is it reachable?",
        tri_peer_text(&late->address).text, peers->family.rank,
        late->stranger ? ", and one that claimed to be it was refused: it has another id" : "",
        late->last_error == 0 ? "" : "; the last attempt: ",
        late->last_error == 0 ? "" : tri_error_text(late->last_error).text, peers->missing);
}
