-- An artifact may be an address, such as that of a pull request. Its file holds the address as text.

ALTER TABLE files ADD COLUMN url text;                      -- null: the artifact is the file itself
