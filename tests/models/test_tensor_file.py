"""What is written tensor by tensor is what the safetensors library reads."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import load_file

from tasks.models.tensor_file import write_tensors

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]


@given(
    layout=st.dictionaries(
        st.text(min_size=1, max_size=5).filter(lambda name: name != "__metadata__"),
        st.tuples(st.lists(st.integers(0, 3), max_size=3), st.sampled_from(DTYPES), st.booleans()),
        max_size=4,
    )
)
def test_the_library_reads_what_was_written(layout, tmp_path_factory):
    file = tmp_path_factory.mktemp("tensors") / "model.safetensors"
    tensors = {}
    for name, (shape, dtype, transposed) in layout.items():
        tensor = torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype)
        tensors[name] = tensor.movedim(0, -1) if transposed and tensor.dim() else tensor
    plain = {n: t.float() if t.is_floating_point() else t for n, t in tensors.items()}
    write_tensors(file, tensors, plain.__getitem__)
    read = load_file(file)
    assert read.keys() == plain.keys()
    for name, tensor in plain.items():
        assert read[name].dtype == tensor.dtype
        assert torch.equal(read[name], tensor)
    with safe_open(file, "pt") as opened:
        assert opened.metadata() == {"format": "pt"}
