import json

from hpcbench_example_echo import answer_to, chunks, completion

QUESTION = [{"type": "image_url"}, {"type": "text", "text": "a b"}]
BODY = {
    "model": "m",
    "stream_options": {"include_usage": True},
    "messages": [{"role": "user", "content": QUESTION}],
}


def test_the_question_is_the_answer_unless_one_is_fixed() -> None:
    assert answer_to(BODY, None) == "a b"
    assert answer_to(BODY, "yes") == "yes"


def test_the_stream_says_what_the_whole_says() -> None:
    events = [one.removeprefix(b"data: ").strip() for one in chunks(BODY, "a b")]
    assert events[-1] == b"[DONE]"
    parts = [json.loads(one) for one in events[:-1]]
    text = "".join(one["choices"][0]["delta"].get("content", "") for one in parts if one["choices"])
    assert text == completion(BODY, "a b")["choices"][0]["message"]["content"]
    assert parts[-1]["usage"]["completion_tokens"] == 2
