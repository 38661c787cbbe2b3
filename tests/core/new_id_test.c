/* How processes agree on a new id, seen from one of them. The others are the test's: what it says
 * that they send arrives, one message at a look. */
#include "csrc/core/new_id.h"

#include <stdio.h>
#include <string.h>

#include "csrc/backend.h"
#include "csrc/base/clock.h"
#include "csrc/core/communicator.h"
#include "csrc/core/match.h"
#include "csrc/core/new_id_message.h"
#include "csrc/core/remote.h"
#include "csrc/core/remote_ask.h"
#include "tests/check.h"

enum { RANKS = 3, MAILS = 8, SENT = 512, SHORT_MS = 300, LONG_MS = 20000 };

/* Ranks below it are one process, and every other rank is one of its own. */
static int32_t together;
static struct tri_new_id_message mails[RANKS][MAILS];
static int arrived[RANKS], taken[RANKS];
/* "ASK 7 to 1, ": what was sent. Attempts of the tested process are A. */
static char sent[SENT];
static uint64_t own_attempt;
/* The other processes' reaction. */
static void (*on_sent)(int32_t to, const struct tri_new_id_message *message);

static void arrive(int32_t from, enum tri_new_id_kind kind, uint64_t attempt,
                   const struct tri_new_id_message *like)
{
    struct tri_new_id_message *mail = &mails[from][arrived[from]];
    if (!CHECK(arrived[from]++ < MAILS))
        return;
    *mail = *like;
    mail->kind = kind;
    mail->attempt = attempt;
    mail->number = kind == TRI_NEW_ID_REFUSAL ? TRIB_ERR_SYSTEM : 1;
    memset(&mail->id, (int)attempt, sizeof mail->id);
    (void)snprintf(mail->text, sizeof mail->text, "no more ids");
}

int32_t __wrap_tri_remote_process(const struct tri_remote *remote, int32_t rank);
int32_t __wrap_tri_remote_process(const struct tri_remote *remote, int32_t rank)
{
    (void)remote;
    return rank < together ? 0 : rank;
}

void __wrap_tri_remote_look(struct tri_remote *remote, int32_t rank, struct tri_remote_rank *out);
void __wrap_tri_remote_look(struct tri_remote *remote, int32_t rank, struct tri_remote_rank *out)
{
    (void)remote;
    (void)rank;
    *out = (struct tri_remote_rank){.state = TRI_REMOTE_PRESENT};
}

size_t __wrap_tri_remote_take(struct tri_remote *remote, int32_t rank, uint8_t *out,
                              size_t capacity);
size_t __wrap_tri_remote_take(struct tri_remote *remote, int32_t rank, uint8_t *out,
                              size_t capacity)
{
    (void)remote;
    CHECK(capacity >= TRI_NEW_ID_BYTES);
    return taken[rank] == arrived[rank] ? 0 : tri_new_id_pack(out, &mails[rank][taken[rank]++]);
}

trib_status __wrap_tri_remote_send(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                                   size_t length);
trib_status __wrap_tri_remote_send(struct tri_remote *remote, int32_t rank, const uint8_t *bytes,
                                   size_t length)
{
    static const char *const names[] = {
        [TRI_NEW_ID_JOIN] = "JOIN", [TRI_NEW_ID_WITHDRAW] = "WITHDRAW",
        [TRI_NEW_ID_ASK] = "ASK",   [TRI_NEW_ID_CONFIRM] = "CONFIRM",
        [TRI_NEW_ID_ID] = "ID",     [TRI_NEW_ID_REFUSAL] = "REFUSAL"};
    struct tri_new_id_message message;
    const size_t used = strlen(sent);
    (void)remote;
    if (!CHECK(tri_new_id_unpack(&message, bytes, length)))
        return TRIB_OK;
    if (message.kind == TRI_NEW_ID_JOIN)
        own_attempt = message.attempt;
    if (message.attempt == own_attempt)
        (void)snprintf(sent + used, SENT - used, "%s A to %d, ", names[message.kind], (int)rank);
    else
        (void)snprintf(sent + used, SENT - used, "%s %d to %d, ", names[message.kind],
                       (int)message.attempt, (int)rank);
    on_sent(rank, &message);
    return TRIB_OK;
}

static trib_status make_id(trib_id *out)
{
    memset(out, 77, sizeof *out);
    return TRIB_OK;
}

/* `rank` of the first `n` ranks gets an id, or not. */
static trib_status get_id(trib_id *out, int32_t rank, int32_t n, int ms)
{
    static const struct tri_transport_ops ops = {.id_create = make_id};
    static const struct tri_backend backend = {.transport = &ops};
    static int nothing;
    int32_t ranks[RANKS] = {0, 1, 2};
    const struct trib_comm comm = {
        .rank = rank, .size = RANKS, .backend = &backend, .remote = (struct tri_remote *)&nothing};
    const struct tri_survivors survivors = {.ranks = ranks, .n = n, .self = rank};
    return tri_new_id(out, &comm, &survivors, tri_deadline_ns((uint32_t)ms));
}

static void begin(const char *name, void (*reaction)(int32_t, const struct tri_new_id_message *))
{
    check_begin("%s", name);
    memset(arrived, 0, sizeof arrived);
    memset(taken, 0, sizeof taken);
    sent[0] = '\0';
    own_attempt = 0;
    together = 0;
    on_sent = reaction;
}

static void end(const char *expected)
{
    CHECK_MSG(strcmp(sent, expected) == 0, "sent: %s", sent);
    check_end();
}

/* A message of the ranks 0 to n - 1, as the tested process has it. */
static struct tri_new_id_message of_ranks(int32_t n)
{
    const int32_t ranks[RANKS] = {0, 1, 2};
    return (struct tri_new_id_message){.n = n,
                                       .digest = tri_digest(0, ranks, (size_t)n * sizeof *ranks)};
}

/* ----------------------------------------------------------------------------------------- leader
 */

static bool confirms_again;

/* It gives its first attempt up, and confirms it although. */
static void join_again(int32_t to, const struct tri_new_id_message *message)
{
    if (message->kind == TRI_NEW_ID_ASK && message->attempt == 7) {
        arrive(to, TRI_NEW_ID_JOIN, 8, message);
        arrive(to, TRI_NEW_ID_CONFIRM, 7, message);
    } else if (message->kind == TRI_NEW_ID_ASK && confirms_again) {
        arrive(to, TRI_NEW_ID_CONFIRM, message->attempt, message);
    }
}

static void leads(void)
{
    const struct tri_new_id_message both = of_ranks(2);
    trib_id id;
    begin("a follower joins anew", join_again);
    confirms_again = true;
    arrive(1, TRI_NEW_ID_JOIN, 7, &both);
    CHECK_OK(get_id(&id, 0, 2, LONG_MS));
    CHECK(id.bytes[0] == 77);
    end("ASK 7 to 1, ASK 8 to 1, ID 8 to 1, ");
    begin("what a follower has said of the attempt before does not count", join_again);
    confirms_again = false;
    arrive(1, TRI_NEW_ID_JOIN, 7, &both);
    CHECK_STATUS(get_id(&id, 0, 2, SHORT_MS), TRIB_ERR_TIMEOUT);
    end("ASK 7 to 1, ASK 8 to 1, REFUSAL 8 to 1, ");
}

/* Rank 1 no longer waits. */
static void only_2(int32_t to, const struct tri_new_id_message *message)
{
    if (message->kind == TRI_NEW_ID_ASK && to == 2)
        arrive(to, TRI_NEW_ID_CONFIRM, message->attempt, message);
}

static void names_who_is_late(void)
{
    const struct tri_new_id_message all = of_ranks(3);
    trib_id id;
    begin("all have joined, and one does not confirm", only_2);
    arrive(1, TRI_NEW_ID_JOIN, 5, &all);
    arrive(2, TRI_NEW_ID_JOIN, 6, &all);
    CHECK_STATUS(get_id(&id, 0, 3, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("these ranks of other processes have not called it: 1; call it again");
    end("ASK 5 to 1, ASK 6 to 2, REFUSAL 5 to 1, REFUSAL 6 to 2, ");
    begin("one has joined, and withdraws", only_2);
    arrive(1, TRI_NEW_ID_JOIN, 5, &all);
    arrive(1, TRI_NEW_ID_WITHDRAW, 5, &all);
    CHECK_STATUS(get_id(&id, 0, 3, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("these ranks of other processes have not called it: 1, 2; call it again");
    end("");
}

/* -------------------------------------------------------------------------------------- follower
 */

/* What it said in an earlier attempt comes first. */
static void answer(int32_t to, const struct tri_new_id_message *message)
{
    if (message->kind == TRI_NEW_ID_JOIN) {
        arrive(to, TRI_NEW_ID_ID, 3, message);
        arrive(to, TRI_NEW_ID_REFUSAL, 4, message);
        arrive(to, TRI_NEW_ID_ASK, 4, message);
        arrive(to, TRI_NEW_ID_ASK, message->attempt, message);
    } else if (message->kind == TRI_NEW_ID_CONFIRM) {
        arrive(to, TRI_NEW_ID_ID, message->attempt, message);
    }
}

static void refuse(int32_t to, const struct tri_new_id_message *message)
{
    if (message->kind == TRI_NEW_ID_JOIN)
        arrive(to, TRI_NEW_ID_REFUSAL, message->attempt, message);
}

static void say_nothing(int32_t to, const struct tri_new_id_message *message)
{
    (void)to;
    (void)message;
}

/* Of ranks 0 and 1, which are one process, rank 1 leads. */
static void lead_from_1(int32_t to, const struct tri_new_id_message *message)
{
    if (message->kind == TRI_NEW_ID_JOIN && to == 1)
        arrive(1, TRI_NEW_ID_ASK, message->attempt, message);
    else if (message->kind == TRI_NEW_ID_CONFIRM)
        arrive(1, TRI_NEW_ID_ID, message->attempt, message);
}

/* Another rank of the leader's process may lead the next attempt, and must not read then what the
 * one before was told. */
static void follows_one_rank(void)
{
    trib_id id;
    begin("a follower confirms to the rank that asks", lead_from_1);
    together = 2;
    CHECK_OK(get_id(&id, 2, 3, LONG_MS));
    end("JOIN A to 0, JOIN A to 1, CONFIRM A to 1, ");
}

static void follows(void)
{
    trib_id id;
    begin("what a leader said of another attempt does not count", answer);
    CHECK_OK(get_id(&id, 1, 2, LONG_MS));
    CHECK(id.bytes[0] == (uint8_t)own_attempt);
    end("JOIN A to 0, CONFIRM A to 0, ");
    begin("a follower that is refused withdraws", refuse);
    CHECK_STATUS(get_id(&id, 1, 2, LONG_MS), TRIB_ERR_SYSTEM);
    CHECK_DETAIL("told by rank 0: no more ids");
    end("JOIN A to 0, WITHDRAW A to 0, ");
    begin("a follower that is late withdraws", say_nothing);
    CHECK_STATUS(get_id(&id, 1, 2, SHORT_MS), TRIB_ERR_TIMEOUT);
    CHECK_DETAIL("rank 0 has sent no new id within the deadline");
    end("JOIN A to 0, WITHDRAW A to 0, ");
}

int main(void)
{
    leads();
    names_who_is_late();
    follows();
    follows_one_rank();
    return check_finish("new_id_test");
}
