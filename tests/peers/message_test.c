/* Messages as bytes, and addresses: what is valid, and what every truncation and every changed byte
 * of a valid one becomes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/peers/address.h"
#include "csrc/peers/message.h"
#include "csrc/peers/proof.h"
#include "tests/check.h"

static const struct {
    enum tri_peer_type type;
    size_t shortest, longest;
    bool handshake, sendable;
} types[] = {
    {TRI_PEER_HELLO, 32, 32, true, false},      {TRI_PEER_CHALLENGE, 32, 32, true, false},
    {TRI_PEER_PROOF, 32, 32, true, false},      {TRI_PEER_REFUSAL, 0, 0, true, false},
    {TRI_PEER_BYE, 0, 0, false, false},         {TRI_PEER_FD, 8, 8, false, false},
    {TRI_PEER_PROGRESS, 0, 65536, false, true}, {TRI_PEER_ABORT, 8, 903, false, true},
    {TRI_PEER_SHRINK, 0, 65536, false, true},   {TRI_PEER_ARRIVAL, 224, 224, false, true},
    {TRI_PEER_ID, 128, 128, false, true},       {TRI_PEER_TIME_OVER, 0, 0, false, true},
};
enum { TYPES = sizeof types / sizeof *types };

static const uint8_t key[TRI_MAC_KEY] = {1, 2, 3};

/* In a block of exactly its size, so that the address sanitizer sees what is read beyond. */
static uint8_t *make(int row, size_t length, size_t *out_n)
{
    const struct tri_peer_message message = {.type = types[row].type,
                                             .sender = 3,
                                             .receiver = 65535,
                                             .sequence = types[row].handshake ? 0 : 1u << 31,
                                             .length = (uint32_t)length};
    const size_t n = TRI_PEER_HEADER + length;
    uint8_t *bytes = malloc(n);
    if (bytes == NULL)
        abort();
    memset(bytes, 0xa5, n);
    tri_peer_header(bytes, &message);
    if (!types[row].handshake)
        tri_peer_sign(bytes, n, key);
    *out_n = n;
    return bytes;
}

static void whole(void)
{
    check_begin("every type, shortest and longest");
    for (int row = 0; row < TYPES; row++) {
        for (int longest = 0; longest < 2; longest++) {
            struct tri_peer_message found;
            size_t n;
            const size_t length = longest ? types[row].longest : types[row].shortest;
            uint8_t *bytes = make(row, length, &n);
            CHECK(tri_peer_parse(bytes, n, &found) == TRI_PEER_WHOLE);
            CHECK(found.type == types[row].type && found.sender == 3 && found.receiver == 65535);
            CHECK(found.sequence == (types[row].handshake ? 0 : 1u << 31));
            CHECK(found.length == length && found.bytes == n && found.payload == bytes + 48);
            CHECK(tri_peer_of_handshake(found.type) == types[row].handshake);
            CHECK(types[row].handshake || tri_peer_signed(bytes, n, key));
            free(bytes);
        }
    }
    check_end();
}

static void lengths(void)
{
    check_begin("lengths that a type does not allow");
    for (int row = 0; row < TYPES; row++) {
        struct tri_peer_message found;
        size_t n;
        uint8_t *longer = make(row, types[row].longest + 1, &n);
        CHECK(tri_peer_parse(longer, n, &found) == TRI_PEER_INVALID);
        free(longer);
        CHECK(tri_peer_sendable(types[row].type, types[row].shortest) == types[row].sendable);
        CHECK(tri_peer_sendable(types[row].type, types[row].longest) == types[row].sendable);
        CHECK(!tri_peer_sendable(types[row].type, types[row].longest + 1));
        if (types[row].shortest == 0)
            continue;
        uint8_t *shorter = make(row, types[row].shortest - 1, &n);
        CHECK(tri_peer_parse(shorter, n, &found) == TRI_PEER_INVALID);
        free(shorter);
        CHECK(!tri_peer_sendable(types[row].type, types[row].shortest - 1));
    }
    CHECK(!tri_peer_sendable((enum tri_peer_type)0, 0));
    CHECK(!tri_peer_sendable((enum tri_peer_type)11, 0));
    check_end();
}

/* A part says how many bytes the whole has, as far as it is known. */
static void truncations(void)
{
    check_begin("every truncation");
    for (int row = 0; row < TYPES; row++) {
        size_t n;
        uint8_t *bytes = make(row, types[row].shortest + (types[row].longest > 600 ? 200 : 0), &n);
        for (size_t part = 0; part < n; part++) {
            struct tri_peer_message found;
            uint8_t *copy = malloc(part == 0 ? 1 : part);
            if (copy == NULL)
                abort();
            memcpy(copy, bytes, part);
            CHECK(tri_peer_parse(copy, part, &found) == TRI_PEER_SHORT);
            CHECK(found.bytes == (part < TRI_PEER_HEADER ? TRI_PEER_HEADER : n));
            free(copy);
        }
        free(bytes);
    }
    check_end();
}

/* It is refused, it waits for more bytes, or, in the handshake, it is another valid message; its
 * MAC is wrong in any case. */
static void check_changed(const uint8_t *bytes, size_t n, int row)
{
    struct tri_peer_message found;
    const enum tri_peer_parsed parsed = tri_peer_parse(bytes, n, &found);
    CHECK(parsed == TRI_PEER_INVALID || found.bytes >= TRI_PEER_HEADER);
    CHECK(parsed != TRI_PEER_SHORT || found.bytes > n);
    CHECK(parsed != TRI_PEER_WHOLE || found.bytes <= n);
    if (parsed != TRI_PEER_WHOLE || types[row].handshake)
        return;
    CHECK(!tri_peer_signed(bytes, found.bytes, key));
}

static void changes(void)
{
    check_begin("every changed byte");
    for (int row = 0; row < TYPES; row++) {
        size_t n;
        uint8_t *bytes = make(row, types[row].shortest + (types[row].longest > 600 ? 20 : 0), &n);
        for (size_t at = 0; at < n; at++) {
            for (int change = 1; change < 256; change++) {
                bytes[at] ^= (uint8_t)change;
                check_changed(bytes, n, row);
                bytes[at] ^= (uint8_t)change;
            }
        }
        free(bytes);
    }
    check_end();
}

/* The fields that have one value only, and the MAC and the sequence of the handshake. */
static void fixed_fields(void)
{
    static const int all[] = {0, 1, 2, 3, 4, 6, 7, 20, 21, 22, 23, 11, 15, 19};
    check_begin("fields with one value");
    for (int row = 0; row < TYPES; row++) {
        struct tri_peer_message found;
        size_t n;
        uint8_t *bytes = make(row, types[row].shortest, &n);
        for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
            bytes[all[i]] ^= 0x80;
            CHECK_MSG(tri_peer_parse(bytes, n, &found) == TRI_PEER_INVALID, "byte %d of type %d",
                      all[i], (int)types[row].type);
            bytes[all[i]] ^= 0x80;
        }
        for (int at = 24; at < 48; at++) {
            bytes[at] ^= 1;
            CHECK((tri_peer_parse(bytes, n, &found) == TRI_PEER_INVALID) == types[row].handshake);
            bytes[at] ^= 1;
        }
        bytes[27] = 0; /* the sequence is 0 */
        CHECK((tri_peer_parse(bytes, n, &found) == TRI_PEER_INVALID) == !types[row].handshake);
        free(bytes);
    }
    check_end();
}

static void aborts(void)
{
    uint8_t payload[TRI_PEER_ABORT_MAX + 1];
    struct tri_peer_abort found, late = {TRIB_ERR_TIMEOUT, 2, {7, 65535}, "rank 3\nis late"};
    check_begin("why a rank aborted");
    size_t n = tri_peer_abort_pack(payload, &late);
    CHECK(n == 8 + 8 + 14 && tri_peer_abort_unpack(&found, payload, n));
    CHECK(found.status == TRIB_ERR_TIMEOUT && strcmp(found.text, "rank 3?is late") == 0);
    CHECK(found.n == 2 && found.lost[0] == 7 && found.lost[1] == 65535);
    for (size_t cut = 0; cut < 16; cut++)
        CHECK(!tri_peer_abort_unpack(&found, payload, cut));
    payload[11] = 0x80; /* a negative rank */
    CHECK(!tri_peer_abort_unpack(&found, payload, n));
    late.n = TRI_LOST_MAX;
    memset(late.text, 'x', sizeof late.text - 1);
    n = tri_peer_abort_pack(payload, &late);
    CHECK(n == TRI_PEER_ABORT_MAX && tri_peer_abort_unpack(&found, payload, n));
    CHECK(strlen(found.text) == TRI_DETAIL_SIZE - 1 && found.n == TRI_LOST_MAX);
    payload[n] = 'x';
    CHECK(!tri_peer_abort_unpack(&found, payload, n + 1));
    payload[4]++; /* one rank more than there may be */
    CHECK(!tri_peer_abort_unpack(&found, payload, n));
    n = tri_peer_abort_pack(payload, &(struct tri_peer_abort){.status = TRIB_OK});
    CHECK(n == 8 && !tri_peer_abort_unpack(&found, payload, n));
    check_end();
}

static void addresses(void)
{
    struct tri_peer_address own, other;
    check_begin("addresses");
    tri_peer_address_fill(&own, 2, 5);
    CHECK(sizeof own <= 256);
    CHECK_OK(tri_peer_address_check(&own, 2, 5));
    CHECK(own.machine != 0 && own.net_namespace != 0 && own.pid_namespace != 0 && own.start != 0);
    CHECK_STATUS(tri_peer_address_check(&own, 1, 5), TRIB_ERR_MISMATCH);
    CHECK_DETAIL("rank 1 of 5: its address names rank 2 of 5");
    CHECK_STATUS(tri_peer_address_check(&own, 2, 6), TRIB_ERR_MISMATCH);
    for (int field = 0; field < 6; field++) {
        other = own;
        other.magic ^= field == 0;
        other.version += field == 1;
        other.unix_length = field == 2 ? TRI_PEER_UNIX_NAME + 1 : 0;
        other.tcp_count = field == 3 ? TRI_PEER_TCP_MAX + 1 : field == 4;
        if (field == 5)
            memset(other.host, 'x', sizeof other.host);
        CHECK_STATUS(tri_peer_address_check(&other, 2, 5), TRIB_ERR_MISMATCH);
    }
    own.unix_length = 1;
    other = own;
    CHECK(tri_peer_same_process(&own, &other) && tri_peer_same_unix(&own, &other));
    other.start++;
    CHECK(!tri_peer_same_process(&own, &other) && tri_peer_same_pids(&own, &other));
    other.machine++;
    CHECK(!tri_peer_same_unix(&own, &other) && !tri_peer_same_pids(&own, &other));
    other = own;
    other.machine = own.machine = 0; /* unknown */
    CHECK(!tri_peer_same_unix(&own, &other) && !tri_peer_same_process(&own, &other));
    own.pid = 4711;
    (void)snprintf(own.host, sizeof own.host, "a\n\x7f\xc3\xa9");
    CHECK(strcmp(tri_peer_text(&own).text, "rank 2 (process 4711 on a??\xc3\xa9)") == 0);
    check_end();
}

int main(void)
{
    whole();
    lengths();
    truncations();
    changes();
    fixed_fields();
    aborts();
    addresses();
    return check_finish("message_test");
}
