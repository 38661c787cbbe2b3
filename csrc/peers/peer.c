/* One other rank as this rank sees it, and its end. */
#define _POSIX_C_SOURCE 200809L
#include "csrc/peers/peer.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>

#include "csrc/base/bytes.h"
#include "csrc/base/clock.h"
#include "csrc/base/descriptor.h"
#include "csrc/base/log.h"
#include "csrc/peers/death.h"

enum { GRACE_MS = 20 }; /* between the end of a connection and that of its process */

void tri_peers_fail(struct tri_peers *peers, trib_status status, const char *format, ...)
{
    va_list arguments;
    if (!peers->connecting || peers->missing == 0 || peers->failure != TRIB_OK)
        return;
    peers->failure = status;
    va_start(arguments, format);
    (void)vsnprintf(peers->failure_text, sizeof peers->failure_text, format, arguments);
    va_end(arguments);
    tri_service_wake();
}

/* Around a callback; tri_peers_close waits in between. False if none may begin. */
static bool begin_call(struct tri_peers *peers, bool wanted)
{
    if (peers->closing || !wanted)
        return false;
    peers->calling = true;
    tri_service_unlock();
    return true;
}

static void end_call(struct tri_peers *peers)
{
    tri_service_lock();
    peers->calling = false;
    tri_service_wake();
}

/* ------------------------------------------------------------------------------------ messages */

static void deliver_fd(struct tri_peer *peer, const struct tri_peer_message *message, int fd)
{
    struct tri_peers *peers = peer->peers;
    const int32_t rank = peer->address.rank;
    bool taken = false;
    const uint64_t tag = tri_load_le(message->payload, 8);
    if (fd < 0) {
        tri_log(TRIB_LOG_ERROR,
                "rank %d: the descriptor %llu from rank %d did not arrive; check the limits on "
                "open files (ulimit -n) of both",
                peers->family.rank, (unsigned long long)tag, rank);
        return;
    }
    if (begin_call(peers, peers->callbacks.fd != NULL)) {
        taken = peers->callbacks.fd(peers->context, rank, tag, fd);
        end_call(peers);
    }
    if (!taken)
        tri_descriptor_close(&fd);
}

void tri_peer_deliver(struct tri_peer *peer, const struct tri_peer_message *message, int fd)
{
    struct tri_peers *peers = peer->peers;
    if (message->type == TRI_PEER_FD) {
        deliver_fd(peer, message, fd);
        return;
    }
    tri_descriptor_close(&fd);
    if (begin_call(peers, peers->callbacks.message != NULL)) {
        peers->callbacks.message(peers->context, peer->address.rank, message->type,
                                 message->payload, message->length);
        end_call(peers);
    }
}

/* ---------------------------------------------------------------------------------------- ends */

static void end(struct tri_peer *peer)
{
    tri_channel_destroy(peer->channel);
    peer->channel = NULL;
    peer->state = TRI_PEER_ENDED;
    tri_service_remove(&peer->retry);
    tri_peer_unwatch(peer);
}

void tri_peer_left(struct tri_peer *peer)
{
    struct tri_peers *peers = peer->peers;
    end(peer);
    tri_peers_fail(peers, TRIB_ERR_CLOSED, "%s closed its communicator meanwhile",
                   tri_peer_text(&peer->address).text);
    if (begin_call(peers, peers->callbacks.left != NULL)) {
        peers->callbacks.left(peers->context, peer->address.rank);
        end_call(peers);
    }
}

/* Returns true if it is the system that says so. */
static bool write_cause(char *out, size_t n, const struct tri_peer *peer)
{
    const struct tri_peer_text who = tri_peer_text(&peer->address);
    struct tri_death_text death = {.known = false};
    if (peer->exited || peer->process.fd >= 0)
        death = tri_death_text(peer->process.fd, peer->address.pid, peer->address.start);
    if (peer->exited || death.known)
        (void)snprintf(out, n, "%s %s", who.text, death.text);
    else if (peer->lost_by == EBADMSG)
        (void)snprintf(out, n, "%s is lost: what came over its connection is not from it",
                       who.text);
    else
        (void)snprintf(out, n, "%s ended, or its host did: its connection ended without a bye%s%s",
                       who.text, peer->lost_by == 0 ? "" : ": ",
                       peer->lost_by == 0 ? "" : tri_error_text(peer->lost_by).text);
    return peer->exited || death.known;
}

static void die(struct tri_peer *peer)
{
    struct tri_peers *peers = peer->peers;
    char text[TRI_DETAIL_SIZE / 2];
    const bool ended = write_cause(text, sizeof text, peer);
    end(peer);
    tri_peers_fail(peers, TRIB_ERR_CLOSED, "%s", text);
    if (begin_call(peers, peers->callbacks.dead != NULL)) {
        peers->callbacks.dead(peers->context, peer->address.rank, text, ended);
        end_call(peers);
    }
}

void tri_peer_lost(struct tri_peer *peer, int error)
{
    tri_channel_destroy(peer->channel);
    peer->channel = NULL;
    peer->state = TRI_PEER_LOST;
    peer->lost_by = error;
    if (peer->process.fd >= 0 && !peer->exited)
        tri_service_deadline(&peer->process, tri_deadline_ns(GRACE_MS));
    else
        die(peer);
}

/* What it sent before it ended may say bye. */
void tri_peer_died(struct tri_peer *peer)
{
    peer->exited = true;
    if (peer->state == TRI_PEER_PRESENT && !tri_channel_drain(peer->channel))
        return;
    if (!peer->peers->closing && peer->state != TRI_PEER_ENDED)
        die(peer);
}

/* -------------------------------------------------------------------------------------- process */

static void process_ready(struct tri_service_item *item, uint32_t events)
{
    struct tri_peer *peer = item->context;
    (void)tri_service_events(item, 0);
    if (events != 0)
        tri_peer_died(peer);
    else
        die(peer);
}

bool tri_peer_watch(struct tri_peer *peer)
{
    const int pidfd = tri_process_watch(peer->address.pid, peer->address.start);
    if (pidfd < 0)
        return pidfd != TRI_PROCESS_ENDED;
    peer->process = (struct tri_service_item){.fd = pidfd, .context = peer, .ready = process_ready};
    tri_service_add(&peer->process);
    if (tri_service_events(&peer->process, EPOLLIN) != 0)
        tri_peer_unwatch(peer);
    return true;
}

void tri_peer_unwatch(struct tri_peer *peer)
{
    tri_service_remove(&peer->process);
    tri_descriptor_close(&peer->process.fd);
}
