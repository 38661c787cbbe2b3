/* What the nccl backend tells the fake of new communicators. */
#define _POSIX_C_SOURCE 200809L
#include "tests/nccl_fake/config.h"

#include <nccl.h>
#include <stdlib.h>
#include <string.h>

#include "csrc/base/status.h"
#include "tests/check.h"
#include "tests/nccl_fake/fake.h"
#include "tests/nccl_fake/fixture.h"

enum { PLENTY_MS = 20000, UNSET = NCCL_CONFIG_UNDEF_INT };

static const struct tri_config some = {.min_ctas = 1,
                                       .max_ctas = 8,
                                       .cta_policy = TRIB_CTA_EFFICIENCY,
                                       .network = "Socket",
                                       .name = "data parallel"};
static const struct tri_config others = {
    .max_ctas = TRIB_CTAS_MAX, .cta_policy = TRIB_CTA_ZERO, .name = "a child"};
static const struct tri_config none;

/* Has NCCL been told this, and nothing else? */
static void told(const struct tri_config *config)
{
    const struct fake_config last = fake_last_config();
    CHECK(last.min_ctas == (config->min_ctas == 0 ? UNSET : (int)config->min_ctas));
    CHECK(last.max_ctas == (config->max_ctas == 0 ? UNSET : (int)config->max_ctas));
    CHECK(last.cta_policy == (config->cta_policy == 0 ? UNSET : config->cta_policy));
    CHECK(strcmp(last.network, config->network) == 0 && strcmp(last.name, config->name) == 0);
}

static void finish(struct tri_transport **ranks, int n)
{
    for (int i = 0; i < n; i++) {
        CHECK_OK(transports()->close(ranks[i], PLENTY_MS));
        transports()->destroy(ranks[i]);
    }
}

/* Everything is freed within a while: background jobs do it. */
static void end(void)
{
    for (int i = 0; i < PLENTY_MS && fake_communicators() != 0; i++)
        check_sleep_ms(1);
    CHECK(fake_communicators() == 0);
    check_end();
}

/* The caller's struct is gone when NCCL may still read the name. */
static void open_and_forget(struct tri_transport **ranks, const struct tri_config *config)
{
    static const int32_t order[2] = {0, 1};
    struct tri_config copy = *config;
    CHECK_OK(transports()->open_group(ranks, order, 2, &copy, PLENTY_MS));
    memset(&copy, 'x', sizeof copy);
}

static void of_groups(void)
{
    struct tri_transport *ranks[2];
    check_begin("nccl over a fake: the configuration of a group");
    CHECK(transports()->open_group(ranks, (int32_t[]){0, 1}, 2, NULL, PLENTY_MS) == TRIB_OK);
    told(&none);
    finish(ranks, 2);
    open_and_forget(ranks, &some);
    told(&some);
    finish(ranks, 2);
    open_and_forget(ranks, &none);
    told(&none);
    finish(ranks, 2);
    end();
}

/* A split configures children when all ranks have come to it. */
static void member(int rank, int size, void *argument)
{
    struct tri_transport *parent = NULL, *child = NULL;
    if (!CHECK_OK(transports()->open(&parent, argument, rank, size, rank, &some, PLENTY_MS)))
        return;
    told(&some);
    if (CHECK_OK(transports()->split(&child, parent, 0, 0, &others, PLENTY_MS))) {
        told(&others);
        finish(&child, 1);
    }
    CHECK_OK(
        transports()->split(&child, parent, rank == 0 ? 0 : TRIB_NO_COLOR, 0, NULL, PLENTY_MS));
    if (child != NULL)
        finish(&child, 1);
    finish(&parent, 1);
}

static void by_id(void)
{
    trib_id id;
    check_begin("nccl over a fake: the configuration by id, and of children");
    CHECK_OK(transports()->id_create(&id));
    check_ranks(3, member, &id);
    end();
}

/* `version`: that NCCL says it has. */
static void asks(int version, const struct tri_config *config, trib_status expected)
{
    struct tri_transport *ranks[2] = {NULL};
    trib_id id;
    CHECK_OK(transports()->id_create(&id));
    fake_version(version);
    const trib_status group =
        transports()->open_group(ranks, (int32_t[]){0, 1}, 2, config, PLENTY_MS);
    CHECK_MSG(group == expected, "NCCL %d: %s", version, trib_status_name(group));
    if (group == TRIB_OK)
        finish(ranks, 2);
    const trib_status one = transports()->open(&ranks[0], &id, 0, 1, 0, config, PLENTY_MS);
    CHECK_MSG(one == expected, "NCCL %d: %s", version, trib_status_name(one));
    if (one == TRIB_OK)
        finish(ranks, 1);
    fake_version(0);
}

/* An older NCCL would ignore a policy; a name it may. */
static void by_version(void)
{
    struct tri_config config = none;
    check_begin("nccl over a fake: policies that NCCL does not have");
    config.cta_policy = TRIB_CTA_EFFICIENCY;
    asks(22605, &config, TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("options.cta_policy is \"efficiency\", which NCCL has since 2.27: NCCL 2.26.5 is");
    asks(22700, &config, TRIB_OK);
    config.cta_policy = TRIB_CTA_ZERO;
    asks(22799, &config, TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("\"zero\", which NCCL has since 2.28: NCCL 2.27.99 is");
    asks(22800, &config, TRIB_OK);
    config = some;
    config.cta_policy = TRIB_CTA_DEFAULT;
    asks(22203, &config, TRIB_OK);
    end();
}

/* Where an abort would not end calls on windows the caller says that this may be. */
static void windows(void)
{
    struct tri_config config = none;
    check_begin("nccl over a fake: windows that NCCL does not have, or that no abort ends");
    config.windows = true;
    asks(22906, &config, TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("before NCCL 2.29.7, and NCCL 2.29.6 is loaded; load a newer one, or add "
                 "TRIB_WINDOWS_UNABORTABLE");
    asks(22907, &config, TRIB_OK);
    config.cta_policy = TRIB_CTA_ZERO;
    asks(22907, &config, TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("no abort ends calls on windows with TRIB_CTA_ZERO");
    config.unabortable = true;
    asks(22907, &config, TRIB_OK);
    config.cta_policy = TRIB_CTA_DEFAULT;
    config.unabortable = false;
    CHECK(setenv("NCCL_CTA_POLICY", "2", 1) == 0);
    asks(22907, &config, TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("NCCL_CTA_POLICY");
    CHECK(setenv("NCCL_CTA_POLICY", "1", 1) == 0);
    asks(22907, &config, TRIB_OK);
    CHECK(unsetenv("NCCL_CTA_POLICY") == 0);
    config.unabortable = true;
    asks(22700, &config, TRIB_OK);
    asks(22699, &config, TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("which NCCL has since 2.27: NCCL 2.26.99 is loaded");
    end();
}

/* By version, the highest first. */
static void capabilities(void)
{
    enum {
        POLICIES = TRIB_CAN_CTA_EFFICIENCY | TRIB_CAN_CTA_ZERO,
        ALL = POLICIES | TRIB_CAN_ASK_RAS | TRIB_CAN_WINDOWS,
        PEERS = TRIB_CAN_PEERS | TRIB_CAN_PEERS_LARGE
    };
    static const struct {
        int version;
        uint32_t can;
    } all[] = {{22907, ALL},
               {22906, POLICIES | TRIB_CAN_ASK_RAS},
               {22800, POLICIES | TRIB_CAN_ASK_RAS},
               {22799, TRIB_CAN_CTA_EFFICIENCY | TRIB_CAN_ASK_RAS},
               {22700, TRIB_CAN_CTA_EFFICIENCY | TRIB_CAN_ASK_RAS},
               {22699, TRIB_CAN_ASK_RAS},
               {22400, TRIB_CAN_ASK_RAS},
               {22399, 0}};
    check_begin("nccl over a fake: capabilities");
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        fake_version(all[i].version);
        const uint32_t can = tri_backend_nccl.capabilities();
        CHECK_MSG((can & ALL) == all[i].can, "NCCL %d: 0x%x", all[i].version, can);
        CHECK((can & TRIB_CAN_INTERRUPT) != 0 && (can & TRIB_CAN_HOST_MEMORY) == 0);
        CHECK((can & PEERS) == PEERS);
    }
    fake_version(0);
    check_end();
}

void configurations(void)
{
    of_groups();
    by_id();
    by_version();
    windows();
    capabilities();
}
