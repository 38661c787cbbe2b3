/* A message between two ranks, as bytes: 48 of header, then the payload. All numbers are
 * little-endian.
 *
 *    0  magic "TRPM"      4  version 1      5  type      6  0 (2 bytes)
 *    8  length of the payload              12  sender   16  receiver    20  0 (4 bytes)
 *   24  sequence (8 bytes): 0 in the handshake, then 1, 2, 3 ... in each direction
 *   32  MAC (16 bytes) of the header above and the payload; 0 in the handshake
 *
 * Everything here is a pure function of bytes; tests/fuzz/peer_message.c fuzzes the parser. */
#ifndef TRI_PEERS_MESSAGE_H
#define TRI_PEERS_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/abort.h"
#include "csrc/base/status.h"
#include "csrc/peers/mac.h"

enum {
    TRI_PEER_HEADER = 48,
    TRI_PEER_MAC_AT = 32,
    TRI_PEER_MAC = 16,
    TRI_PEER_PAYLOAD_MAX = 64 * 1024
};

enum tri_peer_type {
    TRI_PEER_HELLO = 1, /* the handshake: proof.h */
    TRI_PEER_CHALLENGE = 2,
    TRI_PEER_PROOF = 3,
    TRI_PEER_REFUSAL = 4,
    TRI_PEER_BYE = 5,      /* the last message: the end that follows is no death */
    TRI_PEER_FD = 6,       /* comes with a file descriptor; payload: its tag */
    TRI_PEER_PROGRESS = 7, /* from here on what the owner of the channels sends, packed by itself */
    TRI_PEER_ABORT = 8,    /* tri_peer_abort_pack */
    TRI_PEER_SHRINK = 9,
    TRI_PEER_ARRIVAL = 10,  /* a tri_peer_address: from here on what a meeting sends, csrc/job */
    TRI_PEER_ID = 11,       /* a trib_id */
    TRI_PEER_TIME_OVER = 12 /* nothing: the sender waits no longer, and asks who is missing */
};

struct tri_peer_message {
    enum tri_peer_type type;
    int32_t sender, receiver;
    uint64_t sequence;
    uint32_t length;        /* of the payload */
    size_t bytes;           /* of the whole message */
    const uint8_t *payload; /* in the parsed bytes */
};

enum tri_peer_parsed {
    TRI_PEER_WHOLE,
    TRI_PEER_SHORT, /* these bytes may become a message: out->bytes says how many it needs, and from
                       TRI_PEER_HEADER bytes on all but the payload is valid */
    TRI_PEER_INVALID
};

/* Parse the message at the beginning of `n` bytes; bytes that follow it are not read. Checks magic,
 * version, type, the length that the type allows, that ranks are not negative, and the sequence as
 * far as the type decides it. Reads nothing beyond `n`. */
enum tri_peer_parsed tri_peer_parse(const uint8_t *bytes, size_t n, struct tri_peer_message *out);

bool tri_peer_of_handshake(enum tri_peer_type type);
/* May the owner of the channels send this type with a payload of `length`? */
bool tri_peer_sendable(enum tri_peer_type type, size_t length);

/* Write the header of `message`; the MAC is 0. */
void tri_peer_header(uint8_t out[TRI_PEER_HEADER], const struct tri_peer_message *message);
/* Write the MAC of a whole message of `n` bytes; is it right? */
void tri_peer_sign(uint8_t *bytes, size_t n, const uint8_t key[TRI_MAC_KEY]);
bool tri_peer_signed(const uint8_t *bytes, size_t n, const uint8_t key[TRI_MAC_KEY]);

/* The payload of TRI_PEER_ABORT: why the sender's communicator has ended. unpack returns false if it
 * is not one; it terminates the text and replaces what is not printable, because it goes to logs. */
struct tri_peer_abort {
    trib_status status; /* not TRIB_OK */
    int32_t n, lost[TRI_LOST_MAX];
    char text[TRI_DETAIL_SIZE];
};
enum { TRI_PEER_ABORT_MAX = 8 + 4 * TRI_LOST_MAX + TRI_DETAIL_SIZE - 1 };
size_t tri_peer_abort_pack(uint8_t out[TRI_PEER_ABORT_MAX], const struct tri_peer_abort *abort);
bool tri_peer_abort_unpack(struct tri_peer_abort *out, const uint8_t *payload, size_t length);

#endif
