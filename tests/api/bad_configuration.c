/* The members of trib_options that go to NCCL, and the name; and what can be done with them. */
#include <string.h>

#include "tests/api/bad_input.h"

/* Not valid, on any backend; the detail names the member. */
static void refused_options(const trib_options *options, const char *member)
{
    trib_id id;
    trib_group *group = (trib_group *)&id;
    trib_comm *comm = (trib_comm *)&id;
    CHECK_OK(trib_id_create(&id, options->backend));
    CHECK_STATUS(trib_group_create(&group, NULL, 1, options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL(member);
    CHECK_STATUS(trib_comm_create(&comm, &id, 0, 1, 0, options), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_DETAIL(member);
    CHECK(group == NULL && comm == NULL);
}

static void refused_configurations(const char *backend)
{
    char longest[TRIB_NAME_MAX + 2];
    memset(longest, 'n', sizeof longest - 1);
    longest[TRIB_NAME_MAX + 1] = '\0';
    const char *const names[] = {"", "two\nlines", "\x7f", "\x01", longest};
    const trib_options usual = {.size = sizeof usual, .backend = backend};
    trib_options options = usual;
    options.min_ctas = TRIB_CTAS_MAX + 1;
    refused_options(&options, "options.min_ctas is 65");
    options.min_ctas = 3;
    options.max_ctas = UINT32_MAX;
    refused_options(&options, "options.max_ctas is 4294967295");
    options.max_ctas = 2;
    refused_options(&options, "options.min_ctas is 3; expected at most options.max_ctas");
    options = usual;
    options.cta_policy = TRIB_CTA_ZERO + 1;
    refused_options(&options, "options.cta_policy is 3");
    options.cta_policy = -1;
    refused_options(&options, "options.cta_policy is -1");
    options = usual;
    options.flags = TRIB_WINDOWS_UNABORTABLE;
    refused_options(&options, "TRIB_WINDOWS_UNABORTABLE without TRIB_WINDOWS");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        options = usual;
        options.name = names[i];
        refused_options(&options, "options.name");
        options.name = NULL;
        options.network = names[i];
        refused_options(&options, "options.network");
    }
}

/* The limits are allowed; the name arrives, and children have it. */
static void good_configuration(const char *backend)
{
    char longest[TRIB_NAME_MAX + 1];
    memset(longest, 'n', sizeof longest - 1);
    longest[TRIB_NAME_MAX] = '\0';
    trib_options options = TRIB_OPTIONS_INIT;
    trib_comm *comm = NULL, *child = NULL, *shrunk = NULL;
    trib_id id;
    options.backend = backend;
    options.min_ctas = options.max_ctas = TRIB_CTAS_MAX;
    options.name = longest;
    CHECK_OK(trib_id_create(&id, backend));
    if (!CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 0, &options)))
        return;
    longest[0] = 'm';
    CHECK(strlen(trib_comm_name(comm)) == TRIB_NAME_MAX && trib_comm_name(comm)[0] == 'n');
    CHECK_OK(trib_comm_split(&child, comm, 0, 0));
    CHECK_OK(trib_comm_shrink(&shrunk, comm, NULL, 0, 0));
    CHECK(strcmp(trib_comm_name(child), trib_comm_name(comm)) == 0);
    CHECK(strcmp(trib_comm_name(shrunk), trib_comm_name(comm)) == 0);
    CHECK(trib_comm_name(NULL) == NULL);
    CHECK_OK(trib_comm_destroy(child));
    CHECK_OK(trib_comm_destroy(comm));
    CHECK_OK(trib_comm_destroy(shrunk));
    CHECK(strcmp(trib_cta_policy_name(TRIB_CTA_DEFAULT), "default") == 0);
    CHECK(strcmp(trib_cta_policy_name(TRIB_CTA_ZERO), "zero") == 0);
    CHECK(strcmp(trib_cta_policy_name(-1), "?") == 0);
    CHECK(strcmp(trib_cta_policy_name(TRIB_CTA_ZERO + 1), "?") == 0);
}

/* What may be done with a communicator of these flags. */
static void capable(const char *backend, uint32_t flags, uint32_t more, uint32_t less)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_capabilities of_backend = TRIB_CAPABILITIES_INIT, can = TRIB_CAPABILITIES_INIT;
    trib_comm *comm = NULL;
    trib_id id;
    uint32_t version = 0;
    options.backend = backend;
    options.flags = flags;
    CHECK_OK(trib_backend_version(&version, backend));
    CHECK_OK(trib_backend_capabilities(&of_backend, backend));
    CHECK_OK(trib_id_create(&id, backend));
    if (!CHECK_OK(trib_comm_create(&comm, &id, 0, 1, 0, &options)))
        return;
    CHECK_OK(trib_comm_capabilities(&can, comm));
    CHECK(can.version == version && of_backend.version == version);
    CHECK(can.max_ranks == of_backend.max_ranks && can.max_ranks >= team_limit(backend));
    less |= TRIB_CAN_PEERS | TRIB_CAN_PEERS_LARGE; /* it has no peers */
    CHECK(can.flags == ((of_backend.flags | more) & ~less));
    CHECK_STATUS(trib_comm_capabilities(&can, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_STATUS(trib_comm_capabilities(NULL, comm), TRIB_ERR_INVALID_ARGUMENT);
    can.size++;
    CHECK_STATUS(trib_comm_capabilities(&can, comm), TRIB_ERR_INVALID_ARGUMENT);
    CHECK_OK(trib_comm_destroy(comm));
}

/* Only an ncclComm_t can be adopted, and this is none. */
static void adopted(const char *backend)
{
    trib_options options = TRIB_OPTIONS_INIT;
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    trib_comm *comm = (trib_comm *)&options;
    int nothing = 0;
    CHECK_OK(trib_backend_capabilities(&can, backend));
    CHECK(((can.flags & TRIB_CAN_ADOPT) != 0) == (strcmp(backend, "nccl") == 0));
    CHECK_STATUS(trib_comm_adopt(&comm, NULL, NULL), TRIB_ERR_INVALID_ARGUMENT);
    CHECK(comm == NULL);
    options.backend = "host";
    CHECK_STATUS(trib_comm_adopt(&comm, &nothing, &options), TRIB_ERR_UNSUPPORTED);
    CHECK_DETAIL("options.backend is \"host\"");
    options.backend = "pigeon";
    CHECK_STATUS(trib_comm_adopt(&comm, &nothing, &options), TRIB_ERR_UNKNOWN_NAME);
    if (trib_backend_count() == 1) {
        CHECK_STATUS(trib_comm_adopt(&comm, &nothing, NULL), TRIB_ERR_UNSUPPORTED);
        CHECK_DETAIL("this build has no backend that adopts");
    }
}

static void capabilities(const char *backend)
{
    trib_capabilities can = TRIB_CAPABILITIES_INIT;
    capable(backend, 0, 0, 0);
    capable(backend, TRIB_MATCH, TRIB_CAN_COMPARE, TRIB_CAN_CAPTURE);
    if (strcmp(backend, "host") != 0)
        return;
    capable(backend, TRIB_COMPARED, 0, 0);
    CHECK_OK(trib_backend_capabilities(&can, backend));
    CHECK(can.max_ranks == 64 && can.reserved == 0 && can.size == sizeof can);
    CHECK(can.flags ==
          (TRIB_CAN_HOST_MEMORY | TRIB_CAN_COMPARE | TRIB_CAN_INTERRUPT | TRIB_CAN_HEAR));
}

void bad_configurations(const char *backend)
{
    refused_configurations(backend);
    good_configuration(backend);
    capabilities(backend);
    adopted(backend);
}
