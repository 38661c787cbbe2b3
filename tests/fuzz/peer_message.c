/* Fuzz target: bytes that may be a message of another rank, to its parser.
 *
 * The first 32 bytes are a key; the rest is parsed as a stream of messages. What is valid comes out
 * again as it went in. */
#include <string.h>

#include "csrc/peers/message.h"
#include "tests/fuzz/fuzz.h"

static void check_whole(const uint8_t *bytes, size_t n, const struct tri_peer_message *message)
{
    uint8_t header[TRI_PEER_HEADER];
    FUZZ_CHECK(message->bytes <= n && message->bytes == TRI_PEER_HEADER + (size_t)message->length);
    FUZZ_CHECK(message->payload == bytes + TRI_PEER_HEADER);
    FUZZ_CHECK(message->length <= TRI_PEER_PAYLOAD_MAX);
    FUZZ_CHECK(message->sender >= 0 && message->receiver >= 0);
    FUZZ_CHECK((message->sequence == 0) == tri_peer_of_handshake(message->type));
    tri_peer_header(header, message);
    FUZZ_CHECK(memcmp(header, bytes, TRI_PEER_MAC_AT) == 0);
}

/* The text ends inside its array, and nothing in it disturbs a log. */
static void check_abort(const struct tri_peer_message *message)
{
    struct tri_peer_abort found;
    uint8_t again[TRI_PEER_ABORT_MAX];
    if (!tri_peer_abort_unpack(&found, message->payload, message->length))
        return;
    FUZZ_CHECK(found.status != TRIB_OK && found.n >= 0 && found.n <= TRI_LOST_MAX);
    FUZZ_CHECK(strlen(found.text) == message->length - 8 - 4 * (size_t)found.n);
    for (const char *c = found.text; *c != '\0'; c++)
        FUZZ_CHECK((unsigned char)*c >= 0x20 && *c != 0x7f);
    FUZZ_CHECK(tri_peer_abort_pack(again, &found) == message->length);
}

static void check_signature(const uint8_t *bytes, size_t n, const uint8_t *key)
{
    uint8_t copy[TRI_PEER_HEADER + 64];
    (void)tri_peer_signed(bytes, n, key);
    if (n > sizeof copy)
        return;
    memcpy(copy, bytes, n);
    tri_peer_sign(copy, n, key);
    FUZZ_CHECK(tri_peer_signed(copy, n, key));
    copy[n - 1] ^= 1;
    FUZZ_CHECK(!tri_peer_signed(copy, n, key));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    if (bytes < TRI_MAC_KEY)
        return 0;
    const uint8_t *key = data;
    data += TRI_MAC_KEY;
    bytes -= TRI_MAC_KEY;
    for (;;) {
        struct tri_peer_message message;
        const enum tri_peer_parsed parsed = tri_peer_parse(data, bytes, &message);
        if (parsed == TRI_PEER_SHORT)
            FUZZ_CHECK(message.bytes > bytes);
        if (parsed != TRI_PEER_WHOLE)
            return 0;
        check_whole(data, bytes, &message);
        if (message.type == TRI_PEER_ABORT)
            check_abort(&message);
        check_signature(data, message.bytes, key);
        data += message.bytes;
        bytes -= message.bytes;
    }
}
