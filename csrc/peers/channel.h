/* A channel: an authenticated connection between two ranks. Opens with the handshake of proof.h.
 * The caller holds the lock of the service, and the owner's functions are called with it held, on
 * the service thread. */
#ifndef TRI_PEERS_CHANNEL_H
#define TRI_PEERS_CHANNEL_H

#include "csrc/peers/proof.h"
#include "csrc/peers/service.h"
#include "csrc/peers/wire.h"

enum tri_channel_state {
    TRI_CHANNEL_CONNECTS,  /* the system does */
    TRI_CHANNEL_HELLO,     /* acceptor: waits for it */
    TRI_CHANNEL_CHALLENGE, /* connector: waits for it */
    TRI_CHANNEL_PROOF,     /* either: waits for the other's */
    TRI_CHANNEL_OPEN,
    TRI_CHANNEL_CLOSING /* has said bye; reads on until the other end closes, and ignores it */
};

enum tri_channel_end {
    TRI_CHANNEL_LATE,    /* the handshake took too long */
    TRI_CHANNEL_REFUSED, /* the other end does not know the id, or says so of this one */
    TRI_CHANNEL_LEFT,    /* the peer said bye */
    TRI_CHANNEL_BROKEN   /* the connection ended */
};

struct tri_channel;

struct tri_channel_owner {
    /* Acceptor: may the rank that connects (wire.peer) do so? */
    bool (*admits)(struct tri_channel *channel);
    /* Both ends have proved that they know the id. */
    void (*opened)(struct tri_channel *channel);
    /* `fd` becomes the owner's; -1: none. May release the lock meanwhile. */
    void (*message)(struct tri_channel *channel, const struct tri_peer_message *message, int fd);
    /* The last call; the owner destroys the channel. `error`: 0, EBADMSG or the errno. */
    void (*ended)(struct tri_channel *channel, enum tri_channel_end why, int error);
};

/* What the channels of one communicator share. It outlives them. */
struct tri_channel_family {
    const struct tri_channel_owner *owner;
    uint8_t key[TRI_MAC_KEY];
    int32_t rank, size; /* this end's */
    void *context;      /* the owner's */
};

struct tri_channel {
    struct tri_service_item item;
    const struct tri_channel_family *family;
    struct tri_channel *next; /* the owner's */
    enum tri_channel_state state;
    bool connector;
    struct tri_wire wire;
    struct tri_session session;
};

/* A channel on a socket, which becomes its own also on failure. `peer` -1: this end accepted. Unless
 * the handshake has ended by `deadline_ns` it ends with TRI_CHANNEL_LATE; a connector may wait
 * longer for the last message, because the other end may count it as open by then.
 * TRIB_ERR_OUT_OF_MEMORY, TRIB_ERR_SYSTEM. */
trib_status tri_channel_create(struct tri_channel **out, const struct tri_channel_family *family,
                               int fd, bool local, int32_t peer, uint64_t deadline_ns);
void tri_channel_destroy(struct tri_channel *channel); /* NULL allowed */

/* The state is TRI_CHANNEL_OPEN. As tri_wire_queue; the service thread writes. */
trib_status tri_channel_send(struct tri_channel *channel, enum tri_peer_type type,
                             const void *payload, size_t length, int fd);
/* Has the other end proved itself, or may it believe that this one has? */
bool tri_channel_matters(const struct tri_channel *channel);
/* Say bye, write what is queued, and wait for the other end to close: then `ended`. */
void tri_channel_bye(struct tri_channel *channel);
/* Read all that has come. False if `ended` was called. */
bool tri_channel_drain(struct tri_channel *channel);

#endif
