/* Opens the channels of a rank: connects to higher ranks, accepts lower ones. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/peers/connect.h"

#include <errno.h>
#include <stdio.h>

#include "csrc/base/clock.h"
#include "csrc/base/log.h"
#include "csrc/peers/socket.h"

enum {
    ATTEMPT_MS = 2000, /* for one attempt to connect, until the other end is known to be there */
    PAUSE_MS = 20      /* between two attempts */
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
    (void)tri_accept_take(&peers->accept, channel);
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
    if (why == TRI_CHANNEL_REFUSED && tri_accept_logs(&peers->accept))
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
    if (tri_accept_take(&peers->accept, channel)) {
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

trib_status tri_connect_listen(struct tri_peers *peers)
{
    const bool unix_too = (peers->flags & TRI_PEERS_NO_UNIX) == 0;
    const int local = unix_too ? tri_socket_listen_unix(&peers->own) : -EAFNOSUPPORT;
    const int tcp = tri_socket_listen_tcp(&peers->own, (peers->flags & TRI_PEERS_LOOPBACK) != 0);
    tri_accept_begin(&peers->accept, &peers->family);
    tri_accept_set(&peers->accept, true, local);
    tri_accept_set(&peers->accept, false, tcp);
    if (local >= 0 || tcp >= 0)
        return TRIB_OK;
    return tri_fail(TRIB_ERR_SYSTEM,
                    "rank %d cannot listen for the other ranks: %s; check the limit "
                    "on open files (ulimit -n)",
                    peers->family.rank, tri_error_text(-tcp).text);
}

/* A listener that no rank needs is closed. */
static void accept_from_now(struct tri_peers *peers, enum tri_peer_way way)
{
    const bool local = way == TRI_PEER_UNIX;
    bool needed = false;
    for (int32_t rank = 0; rank < peers->family.rank; rank++)
        needed = needed || peers->of[rank].way == way;
    if (!needed) {
        tri_accept_close(&peers->accept, local);
        return;
    }
    const int error = tri_accept_start(&peers->accept, local);
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
    tri_accept_end(&peers->accept);
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
