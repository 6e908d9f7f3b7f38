/* Calls written as text, so that tests of contracts are tables: "f32[4,6] - 3 (1,2) {f32[2] f32[3]} True 1.5 'TND' :f32" are the
 * arguments, and the results come back in the same form. f32[4,6]@cuda is on another device; f32[3,4]/(1,3) has those strides;
 * i32[3]=(5,6,7) has values (CPU). Of what is not known: ? alone is an argument, ?[2,?] a tensor whose dtype and second size,
 * f32[*]@? one whose rank and device are not. Results: "~" before unbacked, "&2" after a view of slot 2, "+5" its offset, "-"
 * absent. */
#ifndef CONTRACT_CALL_H
#define CONTRACT_CALL_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "lang/contract.h"

enum { CALL_ROOM = 65536 };
typedef struct call {
    size_t n;
    dv_value values[80];
    size_t used;
    _Alignas(16) char room[CALL_ROOM];
} call;

static inline void *call_alloc(call *c, size_t size)
{
    size = (size + 15) & ~(size_t)15;
    if (c->used + size > sizeof c->room)
        abort();
    void *p = c->room + c->used;
    c->used += size;
    memset(p, 0, size);
    return p;
}

/* "(1,2,3)": at most 64. */
static inline const char *call_ints(const char *p, int64_t *out, int32_t *n)
{
    const char close = *p == '[' ? ']' : ')';
    *n = 0;
    for (p++; *p && *p != close;) {
        char *end = (char *)(uintptr_t)(p + 1);
        out[(*n)++] = *p == '?' ? -1 : strtoll(p, &end, 10);
        if (end == p || *n == 64)
            abort();
        p = *end == ',' ? end + 1 : end;
    }
    return p + 1;
}

static inline const char *call_tensor(call *c, const char *p, const dv_tensor **out)
{
    char word[40];
    size_t n = strcspn(p, "[");
    snprintf(word, sizeof word, "%.*s", (int)n, p);
    dv_tensor *t = call_alloc(c, sizeof *t);
    int64_t *shape = call_alloc(c, 65 * 8), *strides = call_alloc(c, 65 * 8), step = 1;
    if (*word != '?' && dv_dtype_parse(word, &t->dtype))
        abort();
    if (p[n + 1] == '*')
        t->ndim = -1, p += n + 3;
    else
        p = call_ints(p + n, shape, &t->ndim);
    for (int32_t i = t->ndim - 1; i >= 0; i--) {
        strides[i] = step;
        if (__builtin_mul_overflow(step, shape[i] > 1 ? shape[i] : 1, &step))
            step = 0;
    }
    t->shape = shape;
    t->strides = strides;
    t->device.type = DV_CPU;
    if (*p == '@') {
        n = strcspn(p + 1, " /=}");
        snprintf(word, sizeof word, "%.*s", (int)n, p + 1);
        t->device.type = 0;
        if (*word != '?' && dv_device_parse(word, &t->device))
            abort();
        p += n + 1;
    }
    if (*p == '/') {
        int32_t k;
        p = call_ints(p + 1, strides, &k);
    }
    if (*p == '=') {
        int64_t values[64];
        int32_t k;
        p = call_ints(p + 1, values, &k);
        void *data = call_alloc(c, 64 * 8);
        for (int32_t i = 0; i < k; i++)
            switch (dv_dtype_key(t->dtype)) {
            case DV_DTYPE_i64: ((int64_t *)data)[i] = values[i]; break;
            case DV_DTYPE_i32: ((int32_t *)data)[i] = (int32_t)values[i]; break;
            case DV_DTYPE_u8: ((uint8_t *)data)[i] = (uint8_t)values[i]; break;
            case DV_DTYPE_f32: ((float *)data)[i] = (float)values[i]; break;
            case DV_DTYPE_f64: ((double *)data)[i] = (double)values[i]; break;
            default: abort();
            }
        t->data = data;
    }
    *out = t;
    return p;
}

static inline void call_parse(call *c, const char *text)
{
    c->n = c->used = 0;
    for (const char *p = text; *p;) {
        while (*p == ' ')
            p++;
        if (!*p)
            break;
        dv_value *v = &c->values[c->n++];
        *v = dv_none();
        if (*p == '-' && (p[1] == ' ' || !p[1])) {
            p++;
        } else if (*p == '?' && (p[1] == ' ' || !p[1])) {
            v->type = DV_VALUE_UNKNOWN;
            p++;
        } else if (*p == '(' && strcspn(p, ".") < strcspn(p, ")")) { /* "(0.5,2.0)" */
            double *data = call_alloc(c, 64 * 8);
            size_t n = 0;
            for (char *end; *p != ')'; p = end)
                data[n++] = strtod(p + 1, &end);
            p++;
            *v = (dv_value){ .type = DV_VALUE_FLOATS, .as.floats = { data, n } };
        } else if (*p == '(') {
            int64_t *data = call_alloc(c, 64 * 8);
            int32_t n;
            p = call_ints(p, data, &n);
            *v = dv_from_ints(data, (size_t)n);
        } else if (*p == '{') {
            const dv_tensor **list = call_alloc(c, 16 * sizeof *list);
            size_t n = 0;
            for (p++; *p != '}';) {
                if (*p == ' ')
                    p++;
                else if (*p == '-')
                    list[n++] = NULL, p++;
                else
                    p = call_tensor(c, p, &list[n++]);
            }
            p++;
            *v = dv_from_tensors(list, n);
        } else if (*p == '\'') {
            const char *end = strchr(p + 1, '\'');
            char *s = call_alloc(c, (size_t)(end - p));
            memcpy(s, p + 1, (size_t)(end - p - 1));
            *v = dv_from_string(s);
            p = end + 1;
        } else if (*p == ':') {
            char word[40];
            const size_t n = strcspn(p + 1, " ");
            snprintf(word, sizeof word, "%.*s", (int)n, p + 1);
            dv_dtype t;
            if (dv_dtype_parse(word, &t))
                abort();
            *v = dv_from_dtype(t);
            p += n + 1;
        } else if (!strncmp(p, "True", 4) || !strncmp(p, "False", 5)) {
            *v = dv_from_bool(*p == 'T');
            p += *p == 'T' ? 4 : 5;
        } else if (strcspn(p, "[") < strcspn(p, " ")) {
            const dv_tensor *t;
            p = call_tensor(c, p, &t);
            *v = dv_from_tensor(t);
        } else {
            char *end;
            *v = dv_from_int(strtoll(p, &end, 10));
            if (*end == '.' || *end == 'e')
                *v = dv_from_float(strtod(p, &end));
            if (end == p)
                abort();
            p = end;
        }
    }
}

static inline void call_put_range(dv__strbuf *t, const char *before, dv_range r)
{
    dv__strbuf_printf(
        t, "%s[%lld, %lld, %lld, %lld]", before, (long long)r.least, (long long)r.most, (long long)r.step, (long long)r.rest);
}

static inline void call_put_known(dv__strbuf *t, const dv_partial_spec *k)
{
    call_put_range(t, "{\"present\": ", k->present);
    call_put_range(t, ", \"value\": ", k->value);
    dv__strbuf_printf(t, ", \"dtype\": \"%s\", \"device\": \"%s\", \"sizes\": [", k->dtype.bits ? dv_dtype_name(k->dtype) : "",
        k->device.type ? dv_device_name(k->device.type) : "");
    for (int64_t i = 0; k->value.least == k->value.most && i < k->value.least && i < DV_MAX_NDIM; i++)
        call_put_range(t, i ? ", " : "", k->sizes[i]);
    dv__strbuf_append_str(t, "]}");
}

/* The same for a call that is partly known, as JSON: what is known of the results, and of the contract's names. */
static inline char *call_run_partly(const dv__contract *contract, const dv__schema *schema, const call *c)
{
    dv__strbuf t = { 0 };
    dv__partial *partial;
    dv_partial_spec known;
    char *out;
    if (dv__partial_new(contract, c->values, &partial)) {
        dv__strbuf_append_str(&t, "{\"error\": ");
        dv__json_write_string(&t, dv_last_error(), strlen(dv_last_error()));
    } else {
        dv__strbuf_append_str(&t, "{\"results\": [");
        for (size_t i = 0; i < schema->nreturns; i++) {
            if (dv__partial_get(partial, DV_PARTIAL_RESULT, i, 0, &known))
                abort();
            dv__strbuf_append_str(&t, i ? ", " : "");
            call_put_known(&t, &known);
            if (!(known.flags & DV_SPEC_LIST))
                continue;
            t.size--; /* its tensors, too */
            dv__strbuf_append_str(&t, ", \"of\": [");
            for (int64_t k = 0, n = known.value.most < 4 ? known.value.most : 4; k < n; k++) {
                if (dv__partial_get(partial, DV_PARTIAL_ELEMENT, i, (size_t)k, &known))
                    abort();
                dv__strbuf_append_str(&t, k ? ", " : "");
                call_put_known(&t, &known);
            }
            dv__strbuf_append_str(&t, "]}");
        }
        dv__strbuf_append_str(&t, "], \"names\": [");
        for (size_t i = 0; !dv__partial_get(partial, DV_PARTIAL_NAME, i, 0, &known); i++) {
            dv__strbuf_append_str(&t, i ? ", " : "");
            call_put_known(&t, &known);
        }
        dv__strbuf_append_str(&t, "]");
        dv__partial_free(partial);
    }
    dv__strbuf_append_str(&t, "}");
    if (dv__strbuf_detach(&t, &out))
        abort();
    return out;
}

/* "f32[2,3]/(1,2)@cuda&0" */
static inline void call_print(dv__strbuf *t, const dv__result_metadata *o)
{
    dv__strbuf_printf(t, "%s%s[", o->is_unbacked ? "~" : "", dv_dtype_name(o->dtype));
    bool contiguous = true;
    int64_t step = 1;
    for (int32_t d = 0; d < o->ndim; d++)
        dv__strbuf_printf(t, "%s%lld", d ? "," : "", (long long)o->shape[d]);
    for (int32_t d = o->ndim - 1; d >= 0; d--) {
        contiguous &= o->strides[d] == step;
        step *= o->shape[d] > 1 ? o->shape[d] : 1;
    }
    dv__strbuf_append_str(t, "]");
    if (!contiguous)
        for (int32_t d = 0; d < o->ndim; d++)
            dv__strbuf_printf(t, "%s%lld%s", d ? "," : "/(", (long long)o->strides[d], d + 1 == o->ndim ? ")" : "");
    if (o->device.type != DV_CPU)
        dv__strbuf_printf(t, "@%s", dv_device_name(o->device.type));
    if (o->viewed_slot >= 0)
        dv__strbuf_printf(t, "&%d", (int)o->viewed_slot);
    if (o->offset)
        dv__strbuf_printf(t, "+%lld", (long long)o->offset);
}

/* What the contract infers for this call: the results, or "error: message". The caller frees it. */
static inline char *call_run(const dv__contract *contract, const dv__schema *schema, const call *c, bool values)
{
    dv__strbuf t = { 0 };
    dv__solution s;
    char *out;
    memset(&s, 0xa5, sizeof s); /* nothing may rely on what was there */
    int status = dv__contract_solve(contract, c->values, &s, values);
    for (size_t i = 0; i < schema->nreturns && !status; i++) {
        dv__result_metadata o;
        int64_t count;
        if ((status = dv__contract_eval_list_length(contract, c->values, &s, i, &count)))
            break;
        dv__strbuf_append_str(&t, i ? " " : "");
        if (count >= 0) {
            for (int64_t k = 0; k < count && !(status = dv__contract_eval_list_result(contract, c->values, &s, i, k, &o)); k++) {
                dv__strbuf_append_str(&t, k ? " " : "{");
                call_print(&t, &o);
                s.pool_count = 0;
            }
            dv__strbuf_append_str(&t, count ? "}" : "{}");
            continue;
        }
        if ((status = dv__contract_eval_result(contract, c->values, &s, i, &o)))
            break;
        if (o.ndim < 0) {
            dv__strbuf_append_str(&t, "-");
            continue;
        }
        call_print(&t, &o);
    }
    if (status) {
        dv__strbuf_deinit(&t);
        dv__strbuf_printf(&t, "error: %s: %s", dv_status_name(status), dv_last_error());
    }
    if (dv__strbuf_detach(&t, &out))
        abort();
    return out;
}

#endif
