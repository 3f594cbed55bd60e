"""When requests are due: scenarios and their arrival times. Pure and seeded."""
