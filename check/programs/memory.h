#pragma once
#define _GNU_SOURCE
#include <dovetail_test.h>
#include <errno.h>
#include <fenv.h>
#include <locale.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "names.h"

/* Memory between guard pages, and a host that gives it. */

enum { PAGE = 4096, GUARD = 16 * PAGE };
static unsigned char poison = 0xa5;                                     /* what undefined memory holds */
static int kernel_ran, guarding, at_end = AT_END, allocations, fail_at; /* which allocation fails: 0 none */
static int error_before;                                                /* errno before a kernel */
static _Thread_local int again;                                         /* the same memory as before, in the same order */
__attribute__((unused)) static _Thread_local int which;                 /* of the contents that arguments can have */

typedef struct buffer {
    unsigned char *pages, *data;
    size_t room, bytes;
    int heap, freed, locked, fixed, scratch;
} buffer;
static _Thread_local buffer buffers[4096];
static _Thread_local size_t nbuffers;

static unsigned char *new_pages(size_t room)
{
    unsigned char *p = mmap(NULL, room + 2 * GUARD, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED || (room && mprotect(p + GUARD, room, PROT_READ | PROT_WRITE)))
        exit(2);
    return p + GUARD;
}

/* Memory with one end next to inaccessible pages. */
static void *guarded(size_t bytes, size_t alignment, int fill)
{
    const size_t room = bytes ? (bytes + alignment + PAGE - 1) / PAGE * PAGE : 0;
    buffer *b = &buffers[nbuffers++ % 4096];
    if (!again || !b->pages || b->room != room)
        *b = (buffer){ .pages = new_pages(room), .room = room };
    else if (b->locked)
        mprotect(b->pages, b->room, PROT_READ | PROT_WRITE);
    b->bytes = bytes;
    b->locked = b->fixed = b->freed = b->heap = b->scratch = 0;
    b->data = b->pages;
    if (at_end && bytes)
        b->data += (room - bytes) / alignment * alignment;
    memset(b->pages, 0xc3, b->room);
    memset(b->data, fill, bytes);
    return b->data;
}

/* apart: no better aligned than it is asked for, where its end is the one next to such pages. */
static void *lent(size_t bytes, size_t alignment, int fill, int apart)
{
    const size_t more = apart && at_end && bytes ? alignment : 0;
    unsigned char *p = guarded(bytes + more, alignment, fill);
    buffer *b = &buffers[(nbuffers - 1) % 4096];
    b->bytes = bytes;
    if (more && (uintptr_t)p / alignment % 2 == 0)
        b->data = p += alignment;
    if (more)
        memset(b->data + bytes, 0xc3, b->room - (size_t)(b->data - b->pages) - bytes);
    return p;
}

static void protect(const void *data, int how)
{
    for (size_t i = 0; i < nbuffers; i++)
        if (buffers[i].data == data && buffers[i].bytes) {
            mprotect(buffers[i].pages, buffers[i].room, how);
            buffers[i].locked = how != (PROT_READ | PROT_WRITE);
        }
}

/* A copy that nobody may write: sizes, strides, lists. */
static const void *fixed(const void *data, size_t bytes, size_t alignment)
{
    void *p = guarded(bytes, alignment, 0);
    memcpy(p, data, bytes);
    protect(p, PROT_READ);
    buffers[(nbuffers - 1) % 4096].fixed = 1;
    return p;
}

typedef struct result {
    dv_tensor t;
    const int64_t *dims;
    size_t bytes;
    void *made;
} result;
/* Of more bytes than there may be, of elements of a size; NULL: there is no such memory. */
static void *(*far_memory)(size_t bytes, size_t size, int protection, int fill);
enum { FAR_BYTES = 1 << 28 };

static result *new_result(dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape, const int64_t *strides)
{
    result *r = guarded(sizeof *r, 16, 0);
    const size_t bytes = (size_t)ndim * sizeof *shape;
    r->dims = fixed(shape, bytes, sizeof *shape);
    r->t = (dv_tensor){ NULL, device, ndim, dtype, r->dims, fixed(strides, bytes, sizeof *strides), 0 };
    return r;
}
static int new_tensor(const dv_host *host, int index, dv_dtype dtype, dv_device device, int32_t ndim, const int64_t *shape,
    const int64_t *strides, dv_tensor **out)
{
    int64_t elements = 1;
    (void)host, (void)index;
    if (++allocations == fail_at)
        return dv_fail(DV_ENOMEM, "out of memory");
    result *r = new_result(dtype, device, ndim, shape, strides);
    for (int32_t i = 0; i < ndim; i++)
        elements = !shape[i] || !elements ? 0 : elements + (shape[i] - 1) * strides[i];
    const size_t size = (size_t)(dtype.bits >= 8 ? dtype.bits / 8 : 1);
    r->bytes = (size_t)dv_dtype_bytes(dtype, elements);
    r->made = r->bytes < FAR_BYTES || !far_memory ? guarded(r->bytes, size, poison)
                                                  : far_memory(r->bytes, size, PROT_READ | PROT_WRITE, poison);
    r->t.data = r->made;
    *out = &r->t;
    return DV_OK;
}
static int new_view(const dv_host *host, int index, const dv_tensor *base, int32_t ndim, const int64_t *shape,
    const int64_t *strides, int64_t offset, dv_tensor **out)
{
    result *r = new_result(base->dtype, base->device, ndim, shape, strides);
    (void)host, (void)index;
    r->made = (char *)base->data + offset * dv_dtype_bytes(base->dtype, 1);
    r->t.data = r->made;
    *out = &r->t;
    return DV_OK;
}
static void keep_tensor(const dv_host *host, dv_tensor *t) { (void)host, (void)t; }
/* Was a byte of its pages written that does not belong to it? */
static inline int beside(const buffer *b)
{
    for (size_t k = 0; k < b->room && !b->freed; k++)
        if ((b->pages + k < b->data || b->pages + k >= b->data + b->bytes) && b->pages[k] != 0xc3)
            return 1;
    return 0;
}

static void *lend(const dv_host *host, int use, int slot, size_t bytes, size_t alignment)
{
    (void)host, (void)slot;
    if (++allocations == fail_at)
        return NULL;
    void *p = lent(bytes, alignment, poison, APART && use != DV_MEMORY_STAND_IN);
    buffers[(nbuffers - 1) % 4096].scratch = use == DV_MEMORY_SCRATCH;
    return p;
}
/* Most memory stays until the next call. A piece's memory is gone when the piece returns. */
static void keep(const dv_host *host, void *p)
{
    (void)host;
    for (size_t i = 0; i < nbuffers && i < 4096; i++) {
        buffer *b = &buffers[i];
        if (b->data == p && b->scratch && !b->freed && !beside(b)) {
            mprotect(b->pages, b->room, PROT_NONE);
            b->freed = b->locked = 1;
        }
    }
}
/* What lies below on the stack, where the kernel's variables will be. */
__attribute__((noinline)) static void fill_stack(void)
{
    unsigned char below[1 << 16];
    memset(below, poison, sizeof below);
    __asm__ volatile("" ::"r"(below) : "memory"); /* it is used */
}
static void before_kernel(const dv_host *host)
{
    (void)host, kernel_ran = guarding = 1;
    errno = error_before;
    fill_stack();
}
static void after_kernel(const dv_host *host) { (void)host, guarding = 0; }

static const dv_device cpu = { DV_CPU, 0 };
