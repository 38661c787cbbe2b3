/* The tracer "nvtx": ranges and names for NVIDIA's profilers. NVTX is a header without a library:
 * at its first use it loads the profiler that the environment names; without one it does
 * nothing. */
#include <nvtx3/nvToolsExt.h>

#include "csrc/tracer.h"

/* The domain of all that is told; written once, by begin. */
static nvtxDomainHandle_t domain;

/* Without a profiler there are no domains. */
static bool begin(void)
{
    domain = nvtxDomainCreateA("tributary");
    return domain != NULL;
}

static void name(uint32_t category, const char *text)
{
    nvtxDomainNameCategoryA(domain, category, text);
}

static void push(const char *text, uint32_t category, uint64_t bytes)
{
    const nvtxEventAttributes_t range = {
        .version = NVTX_VERSION,
        .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
        .category = category,
        .payloadType = bytes == 0 ? NVTX_PAYLOAD_UNKNOWN : NVTX_PAYLOAD_TYPE_UNSIGNED_INT64,
        .payload.ullValue = bytes,
        .messageType = NVTX_MESSAGE_TYPE_ASCII,
        .message.ascii = text,
    };
    (void)nvtxDomainRangePushEx(domain, &range);
}

static void pop(void)
{
    (void)nvtxDomainRangePop(domain);
}

static const struct tri_tracer nvtx = {.begin = begin, .name = name, .push = push, .pop = pop};
const struct tri_tracer *const tri_tracer = &nvtx;
