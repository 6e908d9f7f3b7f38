/* crop.c: cut a box out of a picture, and paste one picture into another: exactly, for elements of any type, or bit for bit as
 * the way through a PIL image of bytes gives it.
 *
 * A picture is [..., height, width]. All are one job: copy the rows of the overlap. crop fills the outside with zeros first. */
#include <dovetail_op.h>

/* A float as it comes back from a byte of an image: v * 255 without its fraction, modulo 256, over 255. What no integer can hold
 * (its low byte would be 0 anyhow, or NaN) is 0. */
static inline float through_byte(float v)
{
    const float scaled = v * 255.0f, held = scaled > -0x1p31f && scaled < 0x1p31f ? scaled : 0.0f;
    return (float)((int32_t)held & 255) / 255.0f;
}

DV_INLINE void bytes_line(char *dst, const char *src, int64_t n)
{
    float *restrict out = (float *)(void *)dst;
    const float *restrict in = (const float *)(const void *)src;
    for (int64_t i = 0; i < n; i++)
        out[i] = through_byte(in[i]);
}

/* Rows of n bytes go from src to dst; strides in bytes. */
static void copy_rows(char *dst, int64_t dst_stride, const char *src, int64_t src_stride, int64_t rows, size_t n, bool pil)
{
    for (int64_t i = 0; i < rows; i++)
        if (pil)
            bytes_line(dst + i * dst_stride, src + i * src_stride, (int64_t)(n / sizeof(float)));
        else
            memcpy(dst + i * dst_stride, src + i * src_stride, n);
}

static int64_t max(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t height(const dv_tensor *t) { return t->shape[t->ndim - 2]; }
static int64_t width(const dv_tensor *t) { return t->shape[t->ndim - 1]; }

/* Lay src over dst so that src's corner comes to (x, y) of dst; what falls outside is dropped. */
static void overlay(const dv_tensor *dst, const dv_tensor *src, int64_t x, int64_t y, bool pil)
{
    const int64_t item = dst->dtype.bits / 8, h = height(src), w = width(src), dst_w = width(dst) * item, src_w = w * item;
    const int64_t x0 = max(x, 0), x1 = x > width(dst) - w ? width(dst) : x + w;
    const int64_t y0 = max(y, 0), y1 = y > height(dst) - h ? height(dst) : y + h;
    if (x0 >= x1 || y0 >= y1)
        return;
    const int64_t planes = dv_numel_leading(src, src->ndim - 2);
    char *to = (char *)dst->data + y0 * dst_w + x0 * item;
    const char *from = (const char *)src->data + (y0 - y) * src_w + (x0 - x) * item;
    for (int64_t p = 0; p < planes; p++, to += height(dst) * dst_w, from += h * src_w)
        copy_rows(to, dst_w, from, src_w, y1 - y0, (size_t)((x1 - x0) * item), pil);
}

struct crop {
    const dv_tensor *pic;
    dv_ints box;
    dv_tensor *out;
};

static int cut(const struct crop *a, bool pil)
{
    const int64_t x = a->box.data[0], y = a->box.data[1];
    if (!dv_numel(a->out))
        return DV_OK;
    if (x < 0 || y < 0 || a->box.data[2] > width(a->pic) || a->box.data[3] > height(a->pic))
        memset(a->out->data, 0, (size_t)(dv_numel(a->out) * a->out->dtype.bits / 8));
    if (x > INT64_MIN && y > INT64_MIN)
        overlay(a->out, a->pic, -x, -y, pil);
    return DV_OK;
}
static int crop_any(dv_context *ctx, const struct crop *a)
{
    (void)ctx;
    return cut(a, false);
}
static int crop_pil_f32(dv_context *ctx, const struct crop *a)
{
    (void)ctx;
    return cut(a, true);
}

/* The reference: one element after the other. */
static int crop_reference(dv_context *ctx, const struct crop *a)
{
    const int64_t h = height(a->out), w = width(a->out), planes = dv_numel_leading(a->out, a->out->ndim - 2);
    const int64_t pic_h = height(a->pic), pic_w = width(a->pic);
    const size_t item = a->pic->dtype.bits / 8;
    char *out = a->out->data;
    (void)ctx;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t i = 0; i < h; i++)
            for (int64_t j = 0; j < w; j++, out += item) {
                const int64_t y = a->box.data[1] + i, x = a->box.data[0] + j;
                memset(out, 0, item);
                if (y >= 0 && y < pic_h && x >= 0 && x < pic_w)
                    memcpy(out, (const char *)a->pic->data + (size_t)((p * pic_h + y) * pic_w + x) * item, item);
            }
    return DV_OK;
}

#define PICTURE_TYPES "T in f32 f64 bf16 f16 u8 i8 i16 i32 i64 bool"

DV_OPERATOR(crop, struct crop, (pic, box, out), .schema = "crop(Tensor pic, SymInt[] box) -> Tensor out",
    .contract =
        "pic[*s h w]:T, box[4] -> out[*s box[3]-box[1] box[2]-box[0]]:T; box[2] >= box[0]; box[3] >= box[1]; " PICTURE_TYPES
        "; parallel(*s)",
    .native = "constant_pad_nd(pic, [-box[0], box[2] - pic.shape[-1], -box[1], box[3] - pic.shape[-2]])",
    .gradient = "pic: paste(zeros_like(pic), grad, [box[0], box[1]])",
    .doc = "The part of each picture [height, width] inside box = (left, top, right, bottom); zero where the box leaves it.",
    .kernels = DV_KERNELS(DV_KERNEL(struct crop, "cpu", NULL, crop_any, .split = 1),
        DV_KERNEL(struct crop, "cpu", NULL, crop_reference, .flags = DV_KERNEL_REFERENCE)));

struct paste {
    const dv_tensor *im1, *im2;
    dv_ints coord;
    dv_tensor *out;
};

static int paste_any(dv_context *ctx, const struct paste *a)
{
    const size_t bytes = (size_t)(dv_numel(a->out) * a->out->dtype.bits / 8);
    (void)ctx;
    if (bytes)
        memcpy(a->out->data, a->im1->data, bytes);
    overlay(a->out, a->im2, a->coord.data[0], a->coord.data[1], false);
    return DV_OK;
}
static int paste_pil_f32(dv_context *ctx, const struct paste *a)
{
    (void)ctx;
    bytes_line(a->out->data, a->im1->data, dv_numel(a->out));
    overlay(a->out, a->im2, a->coord.data[0], a->coord.data[1], true);
    return DV_OK;
}

static int paste_reference(dv_context *ctx, const struct paste *a)
{
    const int64_t h = height(a->im1), w = width(a->im1), planes = dv_numel_leading(a->im1, a->im1->ndim - 2);
    const int64_t h2 = height(a->im2), w2 = width(a->im2), left = a->coord.data[0], top = a->coord.data[1];
    const size_t item = a->im1->dtype.bits / 8;
    char *out = a->out->data;
    const char *im1 = a->im1->data, *im2 = a->im2->data;
    (void)ctx;
    for (int64_t p = 0; p < planes; p++)
        for (int64_t y = 0; y < h; y++)
            for (int64_t x = 0; x < w; x++, out += item, im1 += item) {
                const bool inside = y >= top && (uint64_t)y - (uint64_t)top < (uint64_t)h2 && x >= left &&
                    (uint64_t)x - (uint64_t)left < (uint64_t)w2;
                memcpy(out, inside ? im2 + (size_t)((p * h2 + y - top) * w2 + x - left) * item : im1, item);
            }
    return DV_OK;
}

DV_OPERATOR(paste, struct paste, (im1, im2, coord, out), .schema = "paste(Tensor im1, Tensor im2, SymInt[] coord) -> Tensor out",
    .contract = "im1[*s h w]:T, im2[*s h2 w2]:T, coord[2] -> out[*s h w]:T; " PICTURE_TYPES "; parallel(*s)",
    .gradient = "im1: paste(grad, zeros_like(im2), coord); "
                "im2: crop(grad, [coord[0], coord[1], coord[0] + im2.shape[-1], coord[1] + im2.shape[-2]])",
    .doc = "A copy of im1 with im2 laid over it, its corner at coord = (left, top); what falls outside im1 is dropped.",
    .kernels = DV_KERNELS(DV_KERNEL(struct paste, "cpu", NULL, paste_any, .split = 1),
        DV_KERNEL(struct paste, "cpu", NULL, paste_reference, .flags = DV_KERNEL_REFERENCE)));

/* ---- by way of bytes ----------------------------------------------------------------------------------------------------- */

static void all_through_bytes(const dv_tensor *t)
{
    for (int64_t i = 0, n = dv_numel(t); i < n; i++)
        ((float *)t->data)[i] = through_byte(((const float *)t->data)[i]);
}
static int crop_pil_reference(dv_context *ctx, const struct crop *a)
{
    const int status = crop_reference(ctx, a);
    all_through_bytes(a->out);
    return status;
}
static int paste_pil_reference(dv_context *ctx, const struct paste *a)
{
    const int status = paste_reference(ctx, a);
    all_through_bytes(a->out);
    return status;
}

/* The gradients are those of the exact operators: rounding to bytes has none. */
DV_OPERATOR(crop_pil, struct crop, (pic, box, out), .schema = "crop_pil(Tensor pic, SymInt[] box) -> Tensor out",
    .contract =
        "pic[*s h w]:f32, box[4] -> out[*s box[3]-box[1] box[2]-box[0]]:f32; box[2] >= box[0]; box[3] >= box[1]; parallel(*s)",
    .gradient = "pic: paste(zeros_like(pic), grad, [box[0], box[1]])",
    .doc = "crop by way of an 8-bit image, bit for bit as to_tensor(to_pil_image(pic).crop(box)): values are cut to multiples of "
           "1/255 and wrap around outside 0 to 1. The gradient is that of crop.",
    .kernels = DV_KERNELS(DV_KERNEL(struct crop, "cpu", "f32", crop_pil_f32, .split = 1),
        DV_KERNEL(struct crop, "cpu", "f32", crop_pil_reference, .flags = DV_KERNEL_REFERENCE)));
DV_OPERATOR(paste_pil, struct paste, (im1, im2, coord, out),
    .schema = "paste_pil(Tensor im1, Tensor im2, SymInt[] coord) -> Tensor out",
    .contract = "im1[*s h w]:f32, im2[*s h2 w2]:f32, coord[2] -> out[*s h w]:f32; parallel(*s)",
    .gradient = "im1: paste(grad, zeros_like(im2), coord); "
                "im2: crop(grad, [coord[0], coord[1], coord[0] + im2.shape[-1], coord[1] + im2.shape[-2]])",
    .doc = "paste by way of 8-bit images, bit for bit as PIL's: see crop_pil. The gradient is that of paste.",
    .kernels = DV_KERNELS(DV_KERNEL(struct paste, "cpu", "f32", paste_pil_f32, .split = 1),
        DV_KERNEL(struct paste, "cpu", "f32", paste_pil_reference, .flags = DV_KERNEL_REFERENCE)));

DV_LIBRARY_FRAGMENT(dovetail, crop, &dv_op_crop, &dv_op_paste, &dv_op_crop_pil, &dv_op_paste_pil);
