# frozen_string_literal: true

# Can be run again: it makes the table what it should be.
ships = %w[Albatross Brave Clara Dolphin Elisabeth Fortuna Gannet Hope Irene Juno Kestrel Leonora Marigold
           Nautilus Osprey Petrel Queen Rosalind Seabird Tern Undine Viola Wanderer Xenia Zephyr]
homes = %w[Bergen Hull Lisbon Genoa Malmö Turku Brest Cork Gdańsk Kiel Riga Split Tromsø Vigo Oban Bruges Cádiz
           Piraeus Delft Emden]
kinds = %w[barque brig cutter ferry freighter ketch schooner sloop trawler tug]
flags = %w[NO GB PT IT SE FI FR IE PL DE]

now = Time.utc(2025)
vessels = ships.product(homes).first(Vessel::SEEDED).each_with_index.map do |(name, home), index|
  { id: index + 1, name: "#{name} of #{home}", kind: kinds[index % 10], flag: flags[index / 20 % 10],
    length: 8 + (index * 37 % 190), launched: 1890 + (index * 53 % 135), created_at: now, updated_at: now }
end

Vessel.transaction do
  Vessel.delete_all
  Vessel.insert_all!(vessels)
end
