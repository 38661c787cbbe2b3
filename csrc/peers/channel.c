/* A channel: an authenticated connection between two ranks. */
#define _GNU_SOURCE
#include "csrc/peers/channel.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "csrc/base/random.h"
#include "csrc/peers/socket.h"

enum { MESSAGES_AT_ONCE = 16 }; /* then other channels have their turn */

static void write_out(struct tri_channel *channel)
{
    /* If the connection has ended, reading finds it, after what the peer said before. */
    const int error = tri_wire_flush(&channel->wire);
    (void)tri_service_events(&channel->item, EPOLLIN | (error == EAGAIN ? EPOLLOUT : 0u));
    if (error != EAGAIN && channel->state == TRI_CHANNEL_CLOSING)
        (void)shutdown(channel->wire.fd, SHUT_WR);
}

static void ended(struct tri_channel *channel, enum tri_channel_end why, int error)
{
    channel->family->owner->ended(channel, why, error);
}

/* ----------------------------------------------------------------------------------- handshake */

static enum tri_purpose proves(bool connector)
{
    return connector ? TRI_CONNECTOR_PROVES : TRI_ACCEPTOR_PROVES;
}

static enum tri_purpose sends(bool connector)
{
    return connector ? TRI_CONNECTOR_SENDS : TRI_ACCEPTOR_SENDS;
}

static void derive(uint8_t out[TRI_PROOF], const struct tri_channel *channel,
                   enum tri_purpose purpose)
{
    tri_proof_derive(out, channel->family->key, &channel->session, purpose);
}

/* Nothing is queued in a handshake that memory for it could be missing for long: if it is, the
 * handshake is late. */
static void say(struct tri_channel *channel, enum tri_peer_type type, const void *payload, size_t n)
{
    (void)tri_wire_queue(&channel->wire, type, payload, n, -1);
    write_out(channel);
}

static void say_proof(struct tri_channel *channel)
{
    uint8_t proof[TRI_PROOF];
    derive(proof, channel, proves(channel->connector));
    say(channel, TRI_PEER_PROOF, proof, sizeof proof);
}

/* The connector's first word. Returns false if the channel ended. */
static bool connected(struct tri_channel *channel)
{
    const int error = tri_socket_error(channel->wire.fd);
    if (error != 0 || (channel->wire.local && !tri_socket_same_user(channel->wire.fd))) {
        ended(channel, TRI_CHANNEL_BROKEN, error == 0 ? EACCES : error);
        return false;
    }
    channel->state = TRI_CHANNEL_CHALLENGE;
    say(channel, TRI_PEER_HELLO, channel->session.connector_nonce, TRI_NONCE);
    return true;
}

static bool refuse(struct tri_channel *channel)
{
    if (!channel->connector)
        say(channel, TRI_PEER_REFUSAL, NULL, 0);
    ended(channel, TRI_CHANNEL_REFUSED, 0);
    return false;
}

static bool take_hello(struct tri_channel *channel, const struct tri_peer_message *message)
{
    channel->wire.peer = message->sender;
    channel->session.connector = message->sender;
    memcpy(channel->session.connector_nonce, message->payload, TRI_NONCE);
    if (!channel->family->owner->admits(channel))
        return refuse(channel);
    channel->state = TRI_CHANNEL_PROOF;
    say(channel, TRI_PEER_CHALLENGE, channel->session.acceptor_nonce, TRI_NONCE);
    return true;
}

/* From here on the other end may count the channel as open. */
static bool take_challenge(struct tri_channel *channel, const struct tri_peer_message *message)
{
    memcpy(channel->session.acceptor_nonce, message->payload, TRI_NONCE);
    channel->state = TRI_CHANNEL_PROOF;
    tri_service_deadline(&channel->item, 0);
    say_proof(channel);
    return true;
}

static void secure(struct tri_channel *channel)
{
    struct tri_wire_key in, out;
    derive(in.bytes, channel, sends(!channel->connector));
    derive(out.bytes, channel, sends(channel->connector));
    tri_wire_secure(&channel->wire, &in, &out);
    explicit_bzero(&in, sizeof in);
    explicit_bzero(&out, sizeof out);
}

static bool take_proof(struct tri_channel *channel, const struct tri_peer_message *message)
{
    uint8_t expected[TRI_PROOF];
    derive(expected, channel, proves(!channel->connector));
    if (!tri_mac_equal(expected, message->payload, sizeof expected) ||
        !(channel->connector || channel->family->owner->admits(channel)))
        return refuse(channel);
    if (!channel->connector)
        say_proof(channel);
    secure(channel);
    channel->state = TRI_CHANNEL_OPEN;
    tri_service_deadline(&channel->item, 0);
    channel->family->owner->opened(channel);
    return true;
}

/* -------------------------------------------------------------------------------------- reading */

/* Returns false if the channel ended. */
static bool handle(struct tri_channel *channel, const struct tri_peer_message *message)
{
    if (channel->state == TRI_CHANNEL_OPEN && message->type == TRI_PEER_BYE) {
        ended(channel, TRI_CHANNEL_LEFT, 0);
        return false;
    }
    if (channel->state == TRI_CHANNEL_OPEN) {
        channel->family->owner->message(channel, message, tri_wire_take_fd(&channel->wire));
        return true;
    }
    if (channel->state == TRI_CHANNEL_HELLO && message->type == TRI_PEER_HELLO)
        return take_hello(channel, message);
    if (channel->state == TRI_CHANNEL_CHALLENGE && message->type == TRI_PEER_CHALLENGE)
        return take_challenge(channel, message);
    if (channel->state == TRI_CHANNEL_PROOF && message->type == TRI_PEER_PROOF)
        return take_proof(channel, message);
    ended(channel,
          message->type == TRI_PEER_REFUSAL && channel->connector ? TRI_CHANNEL_REFUSED
                                                                  : TRI_CHANNEL_BROKEN,
          EBADMSG);
    return false;
}

/* Read at most `most` messages. Returns false if the channel ended. */
static bool read_in(struct tri_channel *channel, int most)
{
    for (int i = 0; i < most; i++) {
        struct tri_peer_message message;
        int error = 0;
        const bool closing = channel->state == TRI_CHANNEL_CLOSING; /* also since the last one */
        const enum tri_wire_got got = closing ? tri_wire_discard(&channel->wire)
                                              : tri_wire_read(&channel->wire, &message, &error);
        if (got == TRI_WIRE_END) {
            ended(channel, TRI_CHANNEL_BROKEN, error);
            return false;
        }
        if (got == TRI_WIRE_NOTHING)
            return true;
        if (!closing && !handle(channel, &message))
            return false;
    }
    return true;
}

bool tri_channel_drain(struct tri_channel *channel)
{
    return read_in(channel, INT32_MAX);
}

static void ready(struct tri_service_item *item, uint32_t events)
{
    struct tri_channel *channel = item->context;
    if (events == 0) {
        ended(channel, TRI_CHANNEL_LATE, ETIMEDOUT);
        return;
    }
    if (channel->state == TRI_CHANNEL_CONNECTS && !connected(channel))
        return;
    if ((events & EPOLLOUT) != 0)
        write_out(channel);
    if ((events & ~(uint32_t)EPOLLOUT) != 0)
        (void)read_in(channel, MESSAGES_AT_ONCE);
}

/* ------------------------------------------------------------------------------------- lifetime */

static void begin_session(struct tri_channel *channel, int32_t peer)
{
    struct tri_session *session = &channel->session;
    channel->connector = peer >= 0;
    channel->state = channel->connector ? TRI_CHANNEL_CONNECTS : TRI_CHANNEL_HELLO;
    session->size = channel->family->size;
    session->connector = channel->connector ? channel->family->rank : -1;
    session->acceptor = channel->connector ? peer : channel->family->rank;
}

static trib_status begin(struct tri_channel *channel, uint64_t deadline_ns)
{
    struct tri_session *session = &channel->session;
    TRI_TRY(tri_random(channel->connector ? session->connector_nonce : session->acceptor_nonce,
                       TRI_NONCE));
    const int error =
        tri_service_events(&channel->item, channel->connector ? EPOLLOUT : (uint32_t)EPOLLIN);
    if (error != 0)
        return tri_fail(TRIB_ERR_SYSTEM, "rank %d: a connection cannot be watched: %s",
                        channel->family->rank, tri_error_text(error).text);
    tri_service_deadline(&channel->item, deadline_ns);
    return TRIB_OK;
}

trib_status tri_channel_create(struct tri_channel **out, const struct tri_channel_family *family,
                               int fd, bool local, int32_t peer, uint64_t deadline_ns)
{
    struct tri_wire wire;
    struct tri_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL) {
        tri_wire_begin(&wire, fd, local, family->rank, peer);
        tri_wire_end(&wire);
        return tri_fail(TRIB_ERR_OUT_OF_MEMORY, "rank %d: no memory for a connection",
                        family->rank);
    }
    channel->family = family;
    channel->item.fd = fd;
    channel->item.context = channel;
    channel->item.ready = ready;
    tri_wire_begin(&channel->wire, fd, local, family->rank, peer);
    begin_session(channel, peer);
    tri_service_add(&channel->item);
    const trib_status status = begin(channel, deadline_ns);
    if (status != TRIB_OK) {
        tri_channel_destroy(channel);
        return status;
    }
    *out = channel;
    return TRIB_OK;
}

void tri_channel_destroy(struct tri_channel *channel)
{
    if (channel == NULL)
        return;
    tri_service_remove(&channel->item);
    tri_wire_end(&channel->wire);
    free(channel);
}

trib_status tri_channel_send(struct tri_channel *channel, enum tri_peer_type type,
                             const void *payload, size_t length, int fd)
{
    TRI_TRY(tri_wire_queue(&channel->wire, type, payload, length, fd));
    (void)tri_service_events(&channel->item, EPOLLIN | EPOLLOUT); /* wakes the service thread */
    return TRIB_OK;
}

bool tri_channel_matters(const struct tri_channel *channel)
{
    return channel->state == TRI_CHANNEL_OPEN ||
           (channel->state == TRI_CHANNEL_PROOF && channel->connector);
}

void tri_channel_bye(struct tri_channel *channel)
{
    if (channel->state != TRI_CHANNEL_OPEN)
        secure(channel);
    channel->state = TRI_CHANNEL_CLOSING;
    tri_service_deadline(&channel->item, 0);
    /* Without memory for it the others take this end for a death. */
    (void)tri_wire_queue(&channel->wire, TRI_PEER_BYE, NULL, 0, -1);
    write_out(channel);
}
