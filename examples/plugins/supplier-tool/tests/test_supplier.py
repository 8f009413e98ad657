from hpcbench_example_supplier import nearest

KNOWN = ["ACME GmbH", "ACME Ltd", "Umbrella Inc."]


def test_the_nearest_name_is_first() -> None:
    assert nearest("ACNE Gmbh", KNOWN)[0] == "ACME GmbH"


def test_another_name_finds_none() -> None:
    assert nearest("Bäckerei Öztürk", KNOWN) == []
