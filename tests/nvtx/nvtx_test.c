/* What NVTX itself hands to a profiler. This program is the profiler, too: NVTX finds the function
 * pointer below, as it finds a profiler that is linked statically. */
#define _POSIX_C_SOURCE 200809L
#include <nvtx3/nvToolsExt.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/team.h"

enum { N = 64, TEXT = 128 };

/* ---------------------------------------------------------------------------- the profiler */

static int domains, others, names;
static struct nvtxDomainRegistration_st *const mine = (struct nvtxDomainRegistration_st *)&domains;
static char domain_name[TEXT], names_seen[4][TEXT];
static uint32_t categories[4];
static _Atomic int pushes, pops;
static int depth;
static char text[TEXT];
static nvtxEventAttributes_t range;

static nvtxDomainHandle_t create_domain(const char *name)
{
    (void)snprintf(domain_name, sizeof domain_name, "%s", name);
    domains++;
    return mine;
}

static void name_category(nvtxDomainHandle_t domain, uint32_t category, const char *name)
{
    others += domain != mine;
    if (names < 4) {
        categories[names] = category;
        (void)snprintf(names_seen[names], TEXT, "%s", name);
    }
    names++;
}

static int push(nvtxDomainHandle_t domain, const nvtxEventAttributes_t *attributes)
{
    others += domain != mine;
    range = *attributes;
    (void)snprintf(text, sizeof text, "%s", attributes->message.ascii);
    atomic_fetch_add(&pushes, 1);
    return depth++;
}

static int pop(nvtxDomainHandle_t domain)
{
    others += domain != mine;
    atomic_fetch_add(&pops, 1);
    return --depth;
}

static int attach(NvtxGetExportTableFunc_t get_table)
{
    NvtxFunctionTable table = NULL;
    unsigned int size = 0;
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    if (callbacks == NULL ||
        callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE2, &table, &size) == 0)
        return 0;
    *table[NVTX_CBID_CORE2_DomainCreateA] = (NvtxFunctionPointer)create_domain;
    *table[NVTX_CBID_CORE2_DomainNameCategoryA] = (NvtxFunctionPointer)name_category;
    *table[NVTX_CBID_CORE2_DomainRangePushEx] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE2_DomainRangePop] = (NvtxFunctionPointer)pop;
    return 1;
}

extern NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr;
NvtxInitializeInjectionNvtxFunc_t InitializeInjectionNvtx2_fnptr = attach;

/* ------------------------------------------------------------------------------------ cases */

static float data[2][N];

static void names_are(const struct team *team)
{
    CHECK(domains == 1 && strcmp(domain_name, "tributary") == 0);
    CHECK(names == 2 && categories[0] != 0 && categories[1] != 0 && categories[0] != categories[1]);
    CHECK(strstr(names_seen[0], "rank 0 of 2 of communicator ") == names_seen[0]);
    CHECK(strstr(names_seen[1], "rank 1 of 2 of communicator ") == names_seen[1]);
    CHECK(strstr(names_seen[1], ", device 1 of host") != NULL && team->size == 2);
}

static void ranges_are(struct team *team)
{
    for (int rank = 0; rank < 2; rank++) {
        CHECK_OK(trib_allreduce(team->comms[rank], data[rank], data[rank], N, TRIB_F32, TRIB_SUM,
                                team->streams[rank]));
        CHECK(pushes == 2 * rank + 1 && pops == 2 * rank + 1 && depth == 0);
        CHECK(strcmp(text, "trib_allreduce 64 f32") == 0);
        CHECK(range.version == NVTX_VERSION && range.size == NVTX_EVENT_ATTRIB_STRUCT_SIZE);
        CHECK(range.messageType == NVTX_MESSAGE_TYPE_ASCII && range.category == categories[rank]);
        CHECK(range.payloadType == NVTX_PAYLOAD_TYPE_UNSIGNED_INT64 &&
              range.payload.ullValue == N * sizeof(float));
        const trib_tensor tensor = {data[rank], N, TRIB_F32, 0};
        CHECK_OK(trib_allreduce_list(team->comms[rank], &tensor, 1, TRIB_SUM, team->streams[rank]));
        CHECK(strcmp(text, "trib_allreduce_list 1") == 0);
        CHECK(range.payloadType == NVTX_PAYLOAD_UNKNOWN);
    }
    CHECK(pushes == 4 && pops == 4 && depth == 0 && others == 0);
}

int main(void)
{
    struct team team;
    (void)setenv("TRIBUTARY_NVTX", "1", 1);
    check_begin("ranges and names, as a profiler gets them");
    if (team_prepare(&team, "host", 2) && team_split_group(&team, NULL)) {
        names_are(&team);
        ranges_are(&team);
    }
    team_destroy(&team);
    check_end();
    return check_finish("nvtx_test");
}
