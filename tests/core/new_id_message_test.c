/* What processes tell each other to agree on a new id, as bytes: what comes out is what went in, and
 * no bytes make a kind, a count or a text that is none. */
#include "csrc/core/new_id_message.h"

#include <string.h>

#include "tests/check.h"

enum { KIND = 0, N = 4, NUMBER = 24 };

static struct tri_new_id_message example(enum tri_new_id_kind kind)
{
    struct tri_new_id_message message = {
        .kind = kind, .n = 5, .digest = 0xfedcba9876543210u, .attempt = 1ull << 63, .number = 3};
    if (kind == TRI_NEW_ID_ID)
        for (size_t i = 0; i < sizeof message.id; i++)
            message.id.bytes[i] = (uint8_t)(255 - i);
    if (kind == TRI_NEW_ID_REFUSAL)
        strcpy(message.text, "rank 4 is lost");
    return message;
}

static size_t packed_size(enum tri_new_id_kind kind)
{
    if (kind == TRI_NEW_ID_ID)
        return TRI_NEW_ID_HEADER + sizeof(trib_id);
    return TRI_NEW_ID_HEADER + (kind == TRI_NEW_ID_REFUSAL ? strlen("rank 4 is lost") : 0);
}

static void round_trip(enum tri_new_id_kind kind)
{
    uint8_t bytes[TRI_NEW_ID_BYTES + 1] = {0};
    struct tri_new_id_message found, message = example(kind);
    check_begin("a message of kind %d there and back", (int)kind);
    const size_t length = tri_new_id_pack(bytes, &message);
    CHECK(length == packed_size(kind));
    CHECK(tri_new_id_unpack(&found, bytes, length));
    CHECK(found.kind == kind && found.n == 5 && found.number == 3);
    CHECK(found.digest == 0xfedcba9876543210u && found.attempt == 1ull << 63);
    CHECK(memcmp(&found.id, &message.id, sizeof found.id) == 0);
    CHECK(strcmp(found.text, message.text) == 0);
    for (size_t n = 0; n <= TRI_NEW_ID_BYTES + 1; n++) {
        const bool valid = kind == TRI_NEW_ID_REFUSAL
                               ? n >= TRI_NEW_ID_HEADER && n <= TRI_NEW_ID_BYTES
                               : n == length;
        CHECK_MSG(tri_new_id_unpack(&found, bytes, n) == valid, "%zu bytes", n);
    }
    check_end();
}

/* The message with one number changed. */
static bool accepted(enum tri_new_id_kind kind, size_t at, uint32_t number)
{
    uint8_t bytes[TRI_NEW_ID_BYTES];
    struct tri_new_id_message found;
    const struct tri_new_id_message message = example(kind);
    const size_t length = tri_new_id_pack(bytes, &message);
    for (size_t i = 0; i < 4; i++)
        bytes[at + i] = (uint8_t)(number >> 8 * i);
    return tri_new_id_unpack(&found, bytes, length);
}

static void forged(void)
{
    check_begin("messages that nobody sends");
    CHECK(!accepted(TRI_NEW_ID_JOIN, KIND, 0) && !accepted(TRI_NEW_ID_JOIN, KIND, 7));
    CHECK(!accepted(TRI_NEW_ID_JOIN, KIND, 1u << 31 | TRI_NEW_ID_JOIN));
    CHECK(!accepted(TRI_NEW_ID_JOIN, KIND, TRI_NEW_ID_ID)); /* which is longer */
    for (int kind = TRI_NEW_ID_JOIN; kind <= TRI_NEW_ID_REFUSAL; kind++) {
        CHECK(accepted(kind, N, INT32_MAX));
        CHECK(!accepted(kind, N, 0) && !accepted(kind, N, 1u << 31));
    }
    CHECK(accepted(TRI_NEW_ID_JOIN, NUMBER, 1) && accepted(TRI_NEW_ID_JOIN, NUMBER, 5));
    CHECK(!accepted(TRI_NEW_ID_JOIN, NUMBER, 0) && !accepted(TRI_NEW_ID_JOIN, NUMBER, 6));
    CHECK(!accepted(TRI_NEW_ID_JOIN, NUMBER, UINT32_MAX));
    CHECK(!accepted(TRI_NEW_ID_REFUSAL, NUMBER, TRIB_OK));
    CHECK(accepted(TRI_NEW_ID_REFUSAL, NUMBER, TRIB_ERR_MISMATCH));
    check_end();
}

static void texts(void)
{
    static const char sent[] = "a\nb\0c\x7f\xc3\xa9";
    uint8_t bytes[TRI_NEW_ID_BYTES];
    struct tri_new_id_message found, message = example(TRI_NEW_ID_REFUSAL);
    check_begin("texts");
    (void)tri_new_id_pack(bytes, &message);
    memcpy(bytes + TRI_NEW_ID_HEADER, sent, sizeof sent - 1);
    CHECK(tri_new_id_unpack(&found, bytes, TRI_NEW_ID_HEADER + sizeof sent - 1));
    CHECK(strcmp(found.text, "a?b?c?\xc3\xa9") == 0);
    memset(message.text, 'x', sizeof message.text - 1);
    CHECK(tri_new_id_pack(bytes, &message) == TRI_NEW_ID_BYTES);
    CHECK(tri_new_id_unpack(&found, bytes, TRI_NEW_ID_BYTES));
    CHECK(strcmp(found.text, message.text) == 0);
    message.text[0] = '\0';
    CHECK(tri_new_id_pack(bytes, &message) == TRI_NEW_ID_HEADER);
    CHECK(tri_new_id_unpack(&found, bytes, TRI_NEW_ID_HEADER) && found.text[0] == '\0');
    check_end();
}

int main(void)
{
    for (int kind = TRI_NEW_ID_JOIN; kind <= TRI_NEW_ID_REFUSAL; kind++)
        round_trip((enum tri_new_id_kind)kind);
    forged();
    texts();
    return check_finish("new_id_message_test");
}
