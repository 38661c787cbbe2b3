/* What the processes of an aborted communicator tell each other to agree on a new id, as bytes. Pure
 * functions; tests/fuzz/new_id_message.c fuzzes the parser. */
#ifndef TRI_CORE_NEW_ID_MESSAGE_H
#define TRI_CORE_NEW_ID_MESSAGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "csrc/base/status.h"

/* A follower sends JOIN, WITHDRAW and CONFIRM, the leader the others. */
enum tri_new_id_kind {
    TRI_NEW_ID_JOIN = 1,
    TRI_NEW_ID_WITHDRAW = 2,
    TRI_NEW_ID_ASK = 3, /* whether the follower still waits */
    TRI_NEW_ID_CONFIRM = 4,
    TRI_NEW_ID_ID = 5,
    TRI_NEW_ID_REFUSAL = 6
};

struct tri_new_id_message {
    enum tri_new_id_kind kind;
    int32_t n;        /* ranks that remain; above 0 */
    uint64_t digest;  /* of them */
    uint64_t attempt; /* its number, the follower's; also in what the leader sends to it */
    int32_t number;   /* of a join: 1 to n ranks; of a refusal: the status */
    trib_id id;       /* of an id */
    char text[TRI_DETAIL_SIZE]; /* of a refusal */
};

enum { TRI_NEW_ID_HEADER = 28, TRI_NEW_ID_BYTES = TRI_NEW_ID_HEADER + TRI_DETAIL_SIZE - 1 };

/* Returns how many bytes it takes. */
size_t tri_new_id_pack(uint8_t out[TRI_NEW_ID_BYTES], const struct tri_new_id_message *message);
/* False if the bytes are no such message. The text goes to logs: control characters become ?. */
bool tri_new_id_unpack(struct tri_new_id_message *out, const uint8_t *bytes, size_t length);

#endif
