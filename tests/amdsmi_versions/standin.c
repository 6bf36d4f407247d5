/* A stand-in for libamd_smi.so.
 *
 * Compiled with symbols.h, which says STUB(name) for every function that a wrapper asks for, with
 * VERSION, the text that the library gives as its version, with TOLD_ALWAYS, 1 if it tells it
 * before it is initialised, and with INIT_STATUS, which amdsmi_init returns.
 *
 * A function gives the answers that standin_answer registered for it, each some bytes to be copied
 * to one of its pointer arguments, else "not supported". As in the real library, the caller's
 * memory is trusted.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { SUCCESS = 0, NOT_SUPPORTED = 2, NOT_INITIALISED = 32, DEVICES = 2 };

struct answer {
    const char *function;
    void *handle;      /* of the device that answers so */
    int64_t second;    /* the value of the second argument for which it answers so, -1 for any */
    int32_t argument;  /* which argument points to where the bytes go */
    void *bytes;
    size_t size;
    struct answer *next;
};

static struct answer *answers;
static int initialised;

void *standin_device(int index) { return (void *)(uintptr_t)(0x1000 + index); }

void standin_answer(const char *function, void *handle, int64_t second, int32_t argument,
                    const void *bytes, size_t size) {
    struct answer *new = malloc(sizeof *new);
    *new = (struct answer){strdup(function), handle, second, argument, malloc(size), size, answers};
    memcpy(new->bytes, bytes, size);
    answers = new;
}

static int answer(const char *function, void **arguments) {
    int status = initialised ? NOT_SUPPORTED : NOT_INITIALISED;
    for (struct answer *a = answers; initialised && a; a = a->next) {
        if (strcmp(a->function, function) || a->handle != arguments[0]) continue;
        if (a->second >= 0 && a->second != (int64_t)(uint32_t)(uintptr_t)arguments[1]) continue;
        memcpy(arguments[a->argument], a->bytes, a->size);
        status = SUCCESS;
    }
    return status;
}

/* Arguments that the caller didn't pass are read too, and never used. */
#define STUB(name)                                       \
    int name(void *a, void *b, void *c, void *d) {       \
        void *arguments[] = {a, b, c, d};                \
        return answer(#name, arguments);                 \
    }
#include "symbols.h"

int amdsmi_init(uint64_t flags) {
    initialised = flags == 2 && !INIT_STATUS; /* GPUs, and nothing else */
    return INIT_STATUS;
}

int amdsmi_shut_down(void) {
    initialised = 0;
    return SUCCESS;
}

/* The numbers are left out: where they are differs, and the text says them too. */
int amdsmi_get_lib_version(char *version) {
    static const char *text = VERSION;
    if (!initialised && !TOLD_ALWAYS) return NOT_INITIALISED;
    memcpy(version + 16, &text, sizeof text);
    return SUCCESS;
}

int amdsmi_get_socket_handles(uint32_t *count, void **handles) {
    for (int i = 0; handles && i < DEVICES; i++) handles[i] = standin_device(i);
    *count = DEVICES;
    return initialised ? SUCCESS : NOT_INITIALISED;
}

int amdsmi_get_processor_handles(void *socket, uint32_t *count, void **handles) {
    if (handles) *handles = socket;
    *count = 1;
    return SUCCESS;
}

int amdsmi_status_code_to_string(int status, const char **text) {
    *text = "a stand-in's status";
    return SUCCESS;
}
