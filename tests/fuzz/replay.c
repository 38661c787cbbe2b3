/* A target without libFuzzer: every file of the folders that are named is one input. */
#define _POSIX_C_SOURCE 200809L
#include <dirent.h>
#include <string.h>

#include "tests/fuzz/fuzz.h"

enum { LARGEST = 1 << 16 };

static void replay(const char *path)
{
    uint8_t *data = malloc(LARGEST);
    FILE *file = fopen(path, "rb");
    if (data == NULL || file == NULL)
        FUZZ_FAIL("cannot read %s", path);
    const size_t bytes = fread(data, 1, LARGEST, file);
    (void)fclose(file);
    /* A copy of exactly this size: the sanitizer sees a read beyond it. */
    uint8_t *exact = malloc(bytes + (bytes == 0));
    if (exact == NULL)
        FUZZ_FAIL("no memory for %s", path);
    memcpy(exact, data, bytes);
    free(data);
    (void)LLVMFuzzerTestOneInput(exact, bytes);
    free(exact);
}

/* Returns the number of inputs. A failure prints the name of its input last. */
static int replay_folder(const char *folder)
{
    char path[4096];
    int inputs = 0;
    DIR *entries = opendir(folder);
    if (entries == NULL)
        FUZZ_FAIL("there is no folder %s", folder);
    for (const struct dirent *entry = readdir(entries); entry != NULL; entry = readdir(entries)) {
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        (void)fprintf(stderr, "%s\n", path);
        replay(path);
        inputs++;
    }
    (void)closedir(entries);
    return inputs;
}

int main(int argc, char **argv)
{
    int inputs = 0;
    for (int i = 1; i < argc; i++)
        inputs += replay_folder(argv[i]);
    (void)LLVMFuzzerTestOneInput(NULL, 0);
    printf("%d inputs\n", inputs);
    return inputs == 0;
}
