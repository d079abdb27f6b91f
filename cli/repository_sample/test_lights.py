import unittest

from lights import cost, hours_lit


class Nights(unittest.TestCase):
    def test_a_winter_night_is_long(self) -> None:
        self.assertEqual(hours_lit(16, 8), 16)

    def test_all_lights_are_paid_for(self) -> None:
        self.assertEqual(cost(sunset=22, sunrise=4, lights=10, per_hour=0.05), 3.0)


if __name__ == "__main__":
    unittest.main()
