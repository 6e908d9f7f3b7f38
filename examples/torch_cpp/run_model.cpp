// run_model.cpp: a model that uses Dovetail operators, in C++ and without Python.
//
//     run_model [--times N] OPERATORS.so[:OPERATORS.so]... MODEL.pt2 INPUTS.pt OUTPUTS.pt [INPUTS.pt OUTPUTS.pt]...
//
// MODEL.pt2 is a package that AOTInductor made, or a TorchScript file (.pt) of torch.jit.trace. INPUTS.pt is a list of tensors that
// torch.save wrote; OUTPUTS.pt is a tuple that torch.load reads. A model whose run fails says why, and the next inputs are tried.
// With --times all of it is done N times, operators and model loaded anew. export.py makes the files; CMakeLists.txt builds this one.
#include <dovetail_torch.h>

#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/serialization/import.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <iostream>
#include <iterator>
#include <list>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using Tensors = std::vector<at::Tensor>;
using Model = std::function<Tensors(const Tensors &)>;

// A library's operators in torch, as long as this lives.
class Operators {
    dv_library *library = nullptr;
    dv_torch_library *registered = nullptr;

public:
    explicit Operators(const std::string &path)
    {
        if (dv_load(path.c_str(), &library))
            throw std::runtime_error(dv_last_error());
        if (dv_torch_register(library, 0, &registered)) {
            const std::string why = dv_last_error();
            dv_library_free(library);
            throw std::runtime_error(why);
        }
    }
    ~Operators()
    {
        dv_torch_unregister(registered); // first: what still calls an operator gets an error
        dv_library_free(library);
    }
    Operators(const Operators &) = delete;
    Operators &operator=(const Operators &) = delete;
};

static Tensors read(const std::string &path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file)
        throw std::runtime_error("cannot read " + path);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const c10::IValue list = torch::jit::pickle_load(bytes);
    Tensors out;
    for (const c10::IValue &value : list.toListRef())
        out.push_back(value.toTensor());
    return out;
}

static void write(const std::string &path, const Tensors &tensors)
{
    const std::vector<char> bytes = torch::jit::pickle_save(
        c10::ivalue::Tuple::create(std::vector<c10::IValue>(tensors.begin(), tensors.end())));
    std::ofstream(path, std::ios::binary).write(bytes.data(), (std::streamsize)bytes.size());
}

static Model traced(const std::string &path)
{
    return [module = torch::jit::load(path)](const Tensors &inputs) mutable {
        const c10::IValue result = module.forward(std::vector<c10::IValue>(inputs.begin(), inputs.end()));
        Tensors out;
        if (result.isTensor())
            out.push_back(result.toTensor());
        else
            for (const c10::IValue &value : result.toTupleRef().elements())
                out.push_back(value.toTensor());
        return out;
    };
}

static Model load(const std::string &path)
{
    if (path.size() > 4 && path.compare(path.size() - 4, 4, ".pt2") == 0)
        return [loader = std::make_shared<torch::inductor::AOTIModelPackageLoader>(path)](const Tensors &inputs) { return loader->run(inputs); };
    return traced(path);
}

// Everything from loading the operators to unloading them; the exit status.
static int run(int argc, char **argv)
{
    int status = 0;
    std::list<Operators> operators;
    std::istringstream paths(argv[0]);
    for (std::string path; std::getline(paths, path, ':');)
        operators.emplace_back(path);
    const Model model = load(argv[1]);
    for (int i = 2; i + 1 < argc; i += 2)
        try {
            write(argv[i + 1], model(read(argv[i])));
            std::cout << argv[i + 1] << '\n';
        } catch (const c10::Error &e) { // torch's own: what() would add where it was thrown
            std::cerr << argv[i] << ": " << e.what_without_backtrace() << '\n';
            status = 1;
        } catch (const std::exception &e) {
            std::cerr << argv[i] << ": " << e.what() << '\n';
            status = 1;
        }
    return status;
}

int main(int argc, char **argv)
{
    int times = 1, first = 1;
    if (argc > 2 && std::string(argv[1]) == "--times")
        times = std::atoi(argv[2]), first = 3;
    if (argc - first < 4 || (argc - first) % 2) {
        std::cerr << "usage: run_model [--times N] OPERATORS.so[:...] MODEL INPUTS.pt OUTPUTS.pt [INPUTS.pt OUTPUTS.pt]...\n";
        return 2;
    }
    int status = 0;
    try {
        for (int i = 0; i < times && !status; i++)
            status = run(argc - first, argv + first);
    } catch (const std::exception &e) {
        std::cerr << e.what() << '\n';
        status = 1;
    }
    return status;
}
