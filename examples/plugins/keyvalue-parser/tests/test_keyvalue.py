from hpcbench_example_keyvalue import read_lines


def test_lines_become_keys_and_values() -> None:
    text = "Here it is:\n- **Сумма:** 12,50\n* Date : 2024-01-02 10:30\nDate: later"
    found = read_lines(text)
    assert found is not None
    assert (found["Сумма"], found["Date"]) == ("12,50", "2024-01-02 10:30")


def test_text_without_such_lines_is_none() -> None:
    assert read_lines("I cannot read it") is None
