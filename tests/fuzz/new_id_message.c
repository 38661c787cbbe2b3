/* Fuzz target: bytes that another process may send to agree on a new id, to their parser. What it
 * takes has counts within their limits and a text that can be printed, and packs again to the same
 * bytes. */
#include <string.h>

#include "csrc/base/bytes.h"
#include "csrc/core/new_id_message.h"
#include "tests/fuzz/fuzz.h"

static bool is_control(uint8_t byte)
{
    return byte < 0x20 || byte == 0x7f;
}

/* Is it as long as its kind is, and are its counts possible? */
static bool valid(const uint8_t *data, size_t bytes)
{
    if (bytes < 28)
        return false;
    const size_t rest = bytes - 28;
    const uint32_t kind = (uint32_t)tri_load_le(data, 4);
    const int64_t n = (int32_t)tri_load_le(data + 4, 4);
    const int64_t number = (int32_t)tri_load_le(data + 24, 4);
    switch (kind) {
    case TRI_NEW_ID_JOIN:
        return n >= 1 && number >= 1 && number <= n && rest == 0;
    case TRI_NEW_ID_WITHDRAW:
    case TRI_NEW_ID_ASK:
    case TRI_NEW_ID_CONFIRM:
        return n >= 1 && rest == 0;
    case TRI_NEW_ID_ID:
        return n >= 1 && rest == 128;
    case TRI_NEW_ID_REFUSAL:
        return n >= 1 && number != TRIB_OK && rest < TRI_DETAIL_SIZE;
    default:
        return false;
    }
}

static void check_text(const struct tri_new_id_message *message, size_t length)
{
    FUZZ_CHECK(memchr(message->text, '\0', sizeof message->text) != NULL);
    FUZZ_CHECK(strlen(message->text) == length);
    for (const char *c = message->text; *c != '\0'; c++)
        FUZZ_CHECK(!is_control((uint8_t)*c));
}

/* What was parsed, as bytes: those that came, but for the control characters of a text. */
static void check_again(const struct tri_new_id_message *message, const uint8_t *data, size_t bytes)
{
    uint8_t packed[TRI_NEW_ID_BYTES];
    FUZZ_CHECK(tri_new_id_pack(packed, message) == bytes);
    for (size_t i = 0; i < bytes; i++) {
        const bool hidden =
            message->kind == TRI_NEW_ID_REFUSAL && i >= TRI_NEW_ID_HEADER && is_control(data[i]);
        FUZZ_CHECK(packed[i] == (hidden ? '?' : data[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct tri_new_id_message found;
    memset(&found, 0xff, sizeof found);
    const bool taken = tri_new_id_unpack(&found, data, bytes);
    FUZZ_CHECK(taken == valid(data, bytes));
    if (!taken)
        return 0;
    check_text(&found, found.kind == TRI_NEW_ID_REFUSAL ? bytes - TRI_NEW_ID_HEADER : 0);
    check_again(&found, data, bytes);
    return 0;
}
