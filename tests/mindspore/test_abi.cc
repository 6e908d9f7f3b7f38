// Plays MindSpore: a C++ program that calls the nodes of bridges/mindspore/graph.c, which are C, as MindSpore does. What a C++ compiler
// generates for the machine decides where results are returned. Needs no MindSpore; compiled with the strings of before C++11, like its wheels.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

using sizes = std::vector<int64_t>;
using shapes = std::vector<sizes>;

enum TypeId : int { kNumberTypeFloat32 = 43, kNumberTypeFloat64 = 44 };

// mindspore/ccsrc/utils/custom_aot_extra.h, of MindSpore 2.10
class AotExtra {
 public:
    virtual ~AotExtra() = default;
    virtual bool HasAttr(std::string) { abort(); }
    virtual bool GetAttrBool(std::string) { abort(); }
    virtual int64_t GetAttrInt(std::string) { abort(); }
    virtual float GetAttrFloat(std::string) { abort(); }
    virtual std::string GetAttrStr(std::string name) = 0;
    virtual sizes GetAttrIntVec(std::string) { abort(); }
};

class Node : public AotExtra {
 public:
    explicit Node(const char *site) : text(site), file(OPS_DIR "/rms_norm.so") {}
    std::string GetAttrStr(std::string name) override
    {
        asked++;
        if (name == "dv_site")
            return asked % 2 ? text : std::string(text.c_str()); // shared, and the caller's alone
        if (name == "dv_file")
            return file;
        abort();
    }
    int asked = 0;

 private:
    const std::string text, file;
};

#if defined(__clang__)
#pragma clang diagnostic ignored "-Wreturn-type-c-linkage" // what is tested here
#endif
extern "C" {
int dv_node(int, void **, int *, int64_t **, const char **, void *, void *);
sizes dv_nodeInferShape(int *, int64_t **, AotExtra *);
TypeId dv_nodeInferType(std::vector<TypeId>, AotExtra *);
shapes dv_node_severalInferShape(int *, int64_t **, AotExtra *);
std::vector<TypeId> dv_node_severalInferType(std::vector<TypeId>, AotExtra *);
sizes dv_node_gradientInferShape(int *, int64_t **, AotExtra *);
TypeId dv_node_gradientInferType(std::vector<TypeId>, AotExtra *);
shapes dv_node_gradient_severalInferShape(int *, int64_t **, AotExtra *);
std::vector<TypeId> dv_node_gradient_severalInferType(std::vector<TypeId>, AotExtra *);
}

static int failed;

static void check(bool right, const char *what)
{
    if (!right)
        printf("wrong: %s\n", what);
    failed += !right;
}
#define CHECK(x) check(x, #x)

int main()
{
    Node norm("dovetail::rms_norm(x=f32[1], weight=f32[1], eps=0.5)");
    Node added("functional dovetail::add_rms_norm(x=f32[1], residual=f32[1], weight=f32[1], eps=0.5)");
    int64_t known[] = { 3, 2 }, partly[] = { -1, 2 }, width[] = { 2 };
    int ndims[] = { 2, 1 }, three[] = { 2, 2, 1 };
    int64_t *full[] = { known, width }, *half[] = { partly, width }, *of_three[] = { partly, known, width };
    const std::vector<TypeId> types = { kNumberTypeFloat32, kNumberTypeFloat32 }, wide(3, kNumberTypeFloat64);
    for (int i = 0; i < 100; i++) {
        CHECK((dv_nodeInferShape(ndims, full, &norm) == sizes{ 3, 2 }));
        CHECK((dv_nodeInferShape(ndims, half, &norm) == sizes{ -1, 2 }));
        CHECK(dv_nodeInferType(types, &norm) == kNumberTypeFloat32);
        CHECK((dv_node_severalInferShape(three, of_three, &added) == shapes{ { 3, 2 }, { 3, 2 } }));
        CHECK(dv_node_severalInferType(wide, &added) == std::vector<TypeId>(2, kNumberTypeFloat64));
        CHECK((dv_node_gradientInferShape(ndims, half, &norm) == sizes{ -1, 2, 1 }));
        CHECK(dv_node_gradientInferType(types, &norm) == kNumberTypeFloat32);
        CHECK((dv_node_gradient_severalInferShape(ndims, half, &norm) == shapes{ { -1, 2, 1 }, { 2, 1 } }));
        CHECK(dv_node_gradient_severalInferType(types, &norm) == types);
    }
    float x[] = { 1, 1 }, weight[] = { 2, 4 }, out[] = { 0, 0 };
    int64_t one[] = { 1, 2 }, *shape[] = { one, width, one };
    int dims[] = { 2, 1, 2 };
    void *data[] = { x, weight, out };
    const char *names[] = { "float32", "float32", "float32" };
    CHECK(!dv_node(3, data, dims, shape, names, nullptr, &norm));
    CHECK(out[0] > 1.63f && out[0] < 1.64f && out[1] == 2 * out[0]); // 2 / sqrt(1.5)
    width[0] = 5;
    try {
        dv_nodeInferShape(ndims, full, &norm);
        check(false, "an error is thrown");
    } catch (const std::runtime_error &error) {
        CHECK(std::string(error.what()).find("argument 'weight': expected shape [2]") != std::string::npos);
    }
    CHECK(norm.asked > 0 && added.asked > 0);
    return failed != 0;
}
