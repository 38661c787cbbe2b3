/* What ranks in different processes tell each other about their calls, as bytes: what comes out is
 * what went in, and no bytes make an operation, a type or a name that is none. */
#include "csrc/core/remote_message.h"

#include <string.h>

#include "csrc/core/operation.h"
#include "tests/check.h"

static const struct tri_recorded first = {.number = 17,
                                          .collective = 12,
                                          .count = (1ull << 40) + 3,
                                          .entered_ns = 1000,
                                          .stream = 99,
                                          .algorithm = "oktopk",
                                          .timeout_ms = 600000,
                                          .operation = TRI_SPARSE_ALLREDUCE,
                                          .dtype = TRIB_BF16,
                                          .op = TRIB_AVG,
                                          .peer = -1,
                                          .all_ranks = true};

static struct tri_remote_message example(void)
{
    struct tri_remote_message message = {.kind = TRI_REMOTE_ANSWER,
                                         .recorded = true,
                                         .question = 1ull << 63,
                                         .collective = 12,
                                         .entered = 18,
                                         .issued = 17,
                                         .ended = 16};
    tri_call_copy_set(&message.newest, &first, 5000);
    return message;
}

static void copies(void)
{
    struct tri_call_copy copy;
    struct tri_recorded plain = first;
    check_begin("a copy of a record");
    tri_call_copy_set(&copy, &first, 5000);
    CHECK(copy.known && strcmp(copy.algorithm, "oktopk") == 0 && copy.record.algorithm == NULL);
    CHECK(copy.record.entered_ns == 4000 && copy.record.stream == 0 && copy.record.number == 17);
    plain.algorithm = NULL;
    tri_call_copy_set(&copy, &plain, 10); /* a clock that went back */
    CHECK(copy.algorithm[0] == '\0' && copy.record.entered_ns == 0);
    plain.algorithm = "a name that is longer than twenty-four";
    tri_call_copy_set(&copy, &plain, 10);
    CHECK(strcmp(copy.algorithm, "a name that is longer t") == 0);
    check_end();
}

static void round_trip(void)
{
    uint8_t bytes[TRI_REMOTE_BYTES];
    struct tri_remote_message found, message = example();
    check_begin("a message there and back");
    tri_remote_pack(bytes, &message);
    CHECK(tri_remote_unpack(&found, bytes, sizeof bytes));
    CHECK(found.kind == TRI_REMOTE_ANSWER && found.recorded && found.question == 1ull << 63);
    CHECK(found.collective == 12 && found.entered == 18 && found.issued == 17 && found.ended == 16);
    CHECK(found.newest.known && !found.asked.known);
    const struct tri_recorded *call = &found.newest.record;
    CHECK(call->number == 17 && call->collective == 12 && call->count == (1ull << 40) + 3);
    CHECK(call->entered_ns == 4000 && call->timeout_ms == 600000 && call->peer == -1);
    CHECK(call->operation == TRI_SPARSE_ALLREDUCE && call->dtype == TRIB_BF16);
    CHECK(call->op == TRIB_AVG && call->all_ranks);
    CHECK(strcmp(found.newest.algorithm, "oktopk") == 0);
    for (size_t n = 0; n < sizeof bytes; n++)
        CHECK(!tri_remote_unpack(&found, bytes, n));
    CHECK(!tri_remote_unpack(&found, bytes, sizeof bytes + 1));
    check_end();
}

/* The message with one byte changed. */
static bool accepted(size_t at, uint8_t byte)
{
    uint8_t bytes[TRI_REMOTE_BYTES];
    struct tri_remote_message found;
    const struct tri_remote_message message = example();
    tri_remote_pack(bytes, &message);
    bytes[at] = byte;
    return tri_remote_unpack(&found, bytes, sizeof bytes);
}

static void forged(void)
{
    enum { CALL = 48, OPERATION = CALL + 40, PEER = CALL + 32, NAME = CALL + 48 };
    check_begin("messages that nobody sends");
    CHECK(!accepted(0, 0) && accepted(0, TRI_REMOTE_STOPPED) &&
          !accepted(0, TRI_REMOTE_STOPPED + 1));
    CHECK(accepted(OPERATION, TRI_OPERATIONS - 1) && !accepted(OPERATION, TRI_OPERATIONS));
    CHECK(!accepted(OPERATION + 1, 0x80));
    CHECK(accepted(OPERATION + 2, 0) && accepted(OPERATION + 2, TRIB_U64));
    CHECK(!accepted(OPERATION + 2, TRIB_U64 + 1) && !accepted(OPERATION + 2, 255));
    CHECK(accepted(OPERATION + 3, 0) && !accepted(OPERATION + 3, TRIB_AVG + 1));
    CHECK(!accepted(PEER + 3, 0x80)); /* below -1 */
    CHECK(!accepted(NAME, '\n') && !accepted(NAME, ' ') && !accepted(NAME, 0x80));
    CHECK(accepted(NAME, 'x') && accepted(NAME, '\0'));
    check_end();
}

static void unterminated(void)
{
    uint8_t bytes[TRI_REMOTE_BYTES];
    struct tri_remote_message found;
    const struct tri_remote_message message = example();
    check_begin("a name without an end");
    tri_remote_pack(bytes, &message);
    memset(bytes + 96, 'x', 24);
    CHECK(!tri_remote_unpack(&found, bytes, sizeof bytes));
    bytes[119] = '\0';
    CHECK(tri_remote_unpack(&found, bytes, sizeof bytes));
    check_end();
}

int main(void)
{
    copies();
    round_trip();
    forged();
    unterminated();
    return check_finish("remote_message_test");
}
